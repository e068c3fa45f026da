# Prints words with accents, and in Greek and Russian.
#> Straße naïve Łódź καλημέρα привет
print('Stra\xdfe na\xefve \u0141\xf3d\u017a \u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u043f\u0440\u0438\u0432\u0435\u0442')
