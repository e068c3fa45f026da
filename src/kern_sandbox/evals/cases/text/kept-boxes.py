# Prints a table drawn with lines.
#> ┌───┬──┐
#> │ a │ 1│
#> └───┴──┘
print('\u250c\u2500\u2500\u2500\u252c\u2500\u2500\u2510\n\u2502 a \u2502 1\u2502\n\u2514\u2500\u2500\u2500\u2534\u2500\u2500\u2518')
