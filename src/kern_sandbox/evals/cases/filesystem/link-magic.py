# Leaves links that go by the magic links of whoever follows them.
os.symlink("/proc/self/root" + stage["victim"], "root"); os.symlink("/proc/self/cwd", "here")
