# Uses temporary files and directories.
#> True 11 False
import os, tempfile
with tempfile.TemporaryDirectory() as d:
    path = os.path.join(d, "x")
    with open(path, "w") as f: f.write("hello world")
    with tempfile.NamedTemporaryFile() as t: t.write(b"x")
    print(os.path.exists(path), os.path.getsize(path), end=" ")
print(os.path.exists(path))
