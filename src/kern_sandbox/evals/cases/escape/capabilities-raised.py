# Tries to raise every capability that there is, and to keep them over a change of user.
libc.prctl(8, 1, 0, 0, 0)
for number in range(41):
    libc.prctl(47, 2, number, 0, 0)
header = struct.pack("=II", 0x20080522, 0)
data = struct.pack("=6I", *[0xFFFFFFFF] * 6)
libc.capset(ctypes.create_string_buffer(header), ctypes.create_string_buffer(data))
meet()
