# Writes into a file that is shown read-only.
attempt(lambda: open(stage["shown"] + "/writable", "w").write("broken"), lambda: open(stage["shown"] + "/writable", "ab").write(b"more"))
