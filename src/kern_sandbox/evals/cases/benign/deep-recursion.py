# Catches a recursion that goes too deep.
#> too deep
def f(): return f()
try: f()
except RecursionError: print("too deep")
