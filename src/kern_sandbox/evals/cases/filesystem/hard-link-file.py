# Links a file of the host into the workspace.
attempt(lambda: os.link(stage["secret"], "linked"))
