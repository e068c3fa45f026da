# Begins a title and does not end it.
print("\x1b]0;never ended\nREAL OUTPUT")
