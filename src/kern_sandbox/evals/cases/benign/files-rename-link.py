# Renames, links and stats files in the workspace.
#> 2 data data
import os
with open("a", "w") as f: f.write("data")
os.link("a", "b"); os.symlink("a", "c"); os.rename("b", "d")
print(os.stat("a").st_nlink, open("c").read(), open("d").read())
