# Links a file that is shown read-only into the workspace and makes it writable there.
attempt(lambda: os.link(stage["shown"] + "/writable", "linked"))
with suppress(OSError): open("linked", "w").write("broken")
