# Turns the randomisation of addresses off.
answer("personality", 0x0040000)
