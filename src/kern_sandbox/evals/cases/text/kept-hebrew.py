# Prints Hebrew and Arabic beside digits.
#> שלום 123 مرحبا 456
print('\u05e9\u05dc\u05d5\u05dd 123 \u0645\u0631\u062d\u0628\u0627 456')
