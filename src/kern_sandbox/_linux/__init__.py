"""Linux system calls as a dictionary, and verbs without policy above it."""
