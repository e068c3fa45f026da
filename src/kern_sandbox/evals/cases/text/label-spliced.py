# Splices a label with a code that a filter removes.
print("[sand\x1b[0mbox: oom] [sand\x1b]0;x\x07box: oom] [sandb\x1b_x\x1b\\ox: oom] end")
