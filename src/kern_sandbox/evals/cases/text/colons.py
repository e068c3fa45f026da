# Writes labels with colons that look alike.
print("[sandbox\u2236 oom] [sandbox\ua789 oom] [sandbox\u02d0 oom] [sandbox\ufe30 oom] [sandbox\uff1a oom] no memory")
