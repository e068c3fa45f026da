# Tries to raise its limits and its chances when memory runs out, and shows the host what they are.
import resource
for name in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE):
    with suppress(OSError, ValueError): resource.setrlimit(name, (1 << 30, 1 << 30))
for value in ("-1000", "-500"):
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file: file.write(value)
meet()
