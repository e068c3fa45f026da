# Leaves a link to a file of the host that is not there yet.
os.symlink(stage["victim"] + "/new", "result.json")
