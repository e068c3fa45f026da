# Stops Linux in the middle of a copy.
answer("userfaultfd", 1)
