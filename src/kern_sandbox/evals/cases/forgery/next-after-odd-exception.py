# Raises an exception that raises when it is shown, after which the next call must work.
class Odd(BaseException):
    def __str__(self): raise Odd
    __repr__ = __str__
raise Odd
# ---- next call ----
print(1)
