# Splits a label with zero-width characters.
print("[\u200bsand\u200bb\u2060o\ufeffx: o\u00adom] no memory")
