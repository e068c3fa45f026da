# Piles a hundred thousand marks on one letter.
print("a" + "\u0301" * 100000 + " end")
