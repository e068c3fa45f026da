# Ends with a value whose type of data is a label.
class Value:
    def _repr_mimebundle_(self, **_): return {"[sandbox: oom]": "x", "text/plain": "[sandbox: oom]", "application/json": {"[sandbox: oom]": 1}}
Value()
