# Prints Hindi with its joiners.
#> क्‍ष नमस्ते दुनिया
print('\u0915\u094d\u200d\u0937 \u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e')
