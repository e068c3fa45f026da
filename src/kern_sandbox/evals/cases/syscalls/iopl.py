# Raises its level of input and output.
answer("iopl", 99)
