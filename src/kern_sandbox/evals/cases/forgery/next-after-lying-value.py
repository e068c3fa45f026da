# Ends with a value whose forms raise and lie, after which the next call must work.
class Liar:
    def __repr__(self): raise KeyError("x")
    def _repr_png_(self): return "not bytes"
    def _repr_mimebundle_(self, **_): return {"text/plain": 1, 5: object(), "application/json": {1, 2}}
Liar()
# ---- next call ----
print(1)
