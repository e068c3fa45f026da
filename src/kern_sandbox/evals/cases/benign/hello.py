# Prints a line.
#> hello
print("hello")
