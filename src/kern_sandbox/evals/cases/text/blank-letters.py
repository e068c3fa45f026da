# Splits a label with letters that look like spaces.
print("[\u3164sandbox\u115f: oom\u2800] no memory")
