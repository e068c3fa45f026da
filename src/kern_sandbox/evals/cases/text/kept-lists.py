# Prints lists and dictionaries in brackets.
#> [1, 2, 3] ['sandbox', 'oom'] {'sandbox': [1]} [x for x in y]
print("[1, 2, 3] ['sandbox', 'oom'] {'sandbox': [1]} [x for x in y]")
