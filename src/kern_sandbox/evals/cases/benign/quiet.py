# Does something and prints nothing.
total = sum(range(10))
