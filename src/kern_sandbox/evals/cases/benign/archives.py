# Packs and unpacks zip and tar archives.
#> ['x.txt'] ['x.txt'] content
import tarfile, zipfile
with open("x.txt", "w") as f: f.write("content")
with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as z: z.write("x.txt")
with tarfile.open("a.tar.gz", "w:gz") as t: t.add("x.txt")
z, t = zipfile.ZipFile("a.zip"), tarfile.open("a.tar.gz")
print(z.namelist(), t.getnames(), z.read("x.txt").decode())
