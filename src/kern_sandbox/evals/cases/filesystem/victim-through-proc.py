# Writes into a file of the host through the roots that processes show.
for pid in ("self", "1", str(os.getppid())):
    attempt(lambda: open(f"/proc/{pid}/root{stage['victim']}/writable", "r+").write("broken"))
