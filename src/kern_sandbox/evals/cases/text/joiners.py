# Splits a label with joiners.
print("[sa\u200dnd\u200cbox: oom] no memory")
