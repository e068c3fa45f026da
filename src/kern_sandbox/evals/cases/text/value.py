# Ends with a value whose text is a label.
class Value:
    def __repr__(self): return "[sandbox: oom]\x1b[31m no memory"
Value()
