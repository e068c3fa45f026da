# Prints emoji where the text is cut.
print(("a" * 9 + "\U0001F600") * 200000 + "tail")
