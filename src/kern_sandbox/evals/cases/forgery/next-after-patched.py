# Patches what a runner would use, after which the next call must work.
import builtins, json
json.dumps = lambda *a, **k: "{}"
builtins.print = None
sys.modules.clear()
# ---- next call ----
import json
print(json.dumps([1]))
