# Leaves a link to an endless device where the host will read.
os.symlink("/dev/zero", "data.csv")
