# Makes links beside files that are shown read-only.
attempt(lambda: os.symlink("/etc", stage["shown"] + "/link"), lambda: os.link(stage["shown"] + "/secret", stage["shown"] + "/hard"))
