# Compares parts of two processes.
answer("kcmp", 0x7FFFFFFF, 0x7FFFFFFF, 0, 0, 0)
