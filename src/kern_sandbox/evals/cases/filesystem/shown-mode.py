# Changes the mode of a program that is shown read-only to set-user-id.
attempt(lambda: os.chmod(stage["shown"] + "/program", 0o4755), lambda: os.chmod(stage["shown"], 0o700))
