# Prints Persian with its joiners.
#> می‌خواهم کتاب‌ها را
print('\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u06a9\u062a\u0627\u0628\u200c\u0647\u0627 \u0631\u0627')
