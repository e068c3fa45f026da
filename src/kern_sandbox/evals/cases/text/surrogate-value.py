# Ends with a value with a lone surrogate.
class Value:
    def __repr__(self): return "a\ud800b"
Value()
