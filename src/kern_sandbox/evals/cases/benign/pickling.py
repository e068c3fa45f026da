# Pickles and copies its own classes.
#> True
import copy, pickle
class Box:
    def __init__(self, v): self.v = v
    def __eq__(self, other): return self.v == other.v
b = Box([1, {"x": (2,)}])
print(pickle.loads(pickle.dumps(b)) == copy.deepcopy(b) == b)
