# Writes a label in small capitals.
print("[\ua731\u1d00\u0274\u1d05\u0299\u1d0fx: oom] no memory")
