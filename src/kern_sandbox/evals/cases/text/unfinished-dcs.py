# Begins a device string and does not end it.
print("\x1bPnever ended\nREAL OUTPUT")
