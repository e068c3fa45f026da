# Writes a package and imports it.
#> 42
import os
os.makedirs("pkg", exist_ok=True)
with open("pkg/__init__.py", "w") as f: f.write("from .inner import answer\n")
with open("pkg/inner.py", "w") as f: f.write("answer = 42\n")
import sys
sys.path.insert(0, os.getcwd())
import pkg
print(pkg.answer)
