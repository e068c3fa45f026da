# Makes a link to the host's file and reads the link.
os.symlink(stage["secret"], "link")
os.symlink("/proc/self/root" + stage["secret"], "magic")
attempt(lambda: content("link"), lambda: content("magic"))
