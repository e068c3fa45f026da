# Takes a descriptor out of a process.
answer("pidfd_getfd", -1, 0, 0)
