# Sets up io_uring.
answer("io_uring_setup", 1, NOWHERE)
