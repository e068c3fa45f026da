# Turns a label round.
print("\u202e]moo :xobdnas[\u202c no memory")
