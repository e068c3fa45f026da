# Crashes by touching memory that is not there, after which the next call must work.
ctypes.string_at(0)
# ---- next call ----
print(1)
