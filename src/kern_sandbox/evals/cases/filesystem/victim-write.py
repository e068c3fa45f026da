# Writes into a file of the host by its own name.
attempt(lambda: open(stage["victim"] + "/writable", "r+").write("broken"), lambda: os.unlink(stage["victim"] + "/program"))
