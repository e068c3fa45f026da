# Seizes a process.
answer("ptrace", 0x4206, 0x7FFFFFFF, 0, 0)
