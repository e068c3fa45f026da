# Turns the randomisation of addresses off, and lets the host see whether it is.
meet()
call("personality", 0x0040000)
meet()
