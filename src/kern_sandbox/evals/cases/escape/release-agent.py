# Looks for a release_agent or cgroup.procs that it may write, as CVE-2022-0492 did.
meet()
for folder, _, names in os.walk("/sys/fs/cgroup"):
    found = [open(f"{folder}/{name}", "r+") for name in ("release_agent", "cgroup.procs") if os.access(f"{folder}/{name}", os.W_OK)]
    if found: break
meet()
