# Strikes a label out, letter by letter.
print("".join(c + "\u0336" for c in "[sandbox: oom]") + " no memory")
