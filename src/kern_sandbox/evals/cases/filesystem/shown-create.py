# Makes a file and a directory beside files that are shown read-only.
attempt(lambda: open(stage["shown"] + "/new", "w"), lambda: os.mkdir(stage["shown"] + "/folder"))
