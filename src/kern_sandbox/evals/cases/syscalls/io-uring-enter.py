# Enters an io_uring.
answer("io_uring_enter", 99, 1, 0, 0, 0, 0)
