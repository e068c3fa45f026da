# Makes a tree of files, finds and removes it.
#> ['a/1.txt', 'a/b/2.txt'] False
import shutil
from pathlib import Path
Path("tree/a/b").mkdir(parents=True)
Path("tree/a/1.txt").write_text("1"); Path("tree/a/b/2.txt").write_text("2")
found = sorted(str(p.relative_to("tree")) for p in Path("tree").rglob("*.txt"))
shutil.rmtree("tree")
print(found, Path("tree").exists())
