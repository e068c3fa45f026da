# Leaves a link to the host's directory in the middle of a path.
os.symlink(stage["victim"], "data")
