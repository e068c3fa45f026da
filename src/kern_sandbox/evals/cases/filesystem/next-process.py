# Leaves a process that holds a word on its command line, for the next call to find.
null = open(os.devnull, "r+")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(8)", stage["once"]], stdin=null, stdout=null, stderr=null, start_new_session=True)
while stage["once"].encode() not in content(f"/proc/{child.pid}/cmdline"): time.sleep(0.01)
# ---- next call ----
for pid in filter(str.isdigit, os.listdir("/proc")):
    with suppress(OSError): print(content(f"/proc/{pid}/cmdline"))
