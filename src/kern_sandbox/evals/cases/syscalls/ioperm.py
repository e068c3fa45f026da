# Asks for hardware ports.
answer("ioperm", -1, -1, 1)
