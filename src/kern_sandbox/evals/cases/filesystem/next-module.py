# Leaves a change to a module of the interpreter, for the next call to import.
import json
json.left = stage["once"]
sys.modules["os"].left = stage["once"]
path = json.__file__
attempt(lambda: open(path, "a").write("\n"), lambda: open(os.path.dirname(path) + "/left.py", "w"))
# ---- next call ----
import json
print(getattr(json, "left", "nothing"), getattr(os, "left", "nothing"))
