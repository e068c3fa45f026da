# Writes a label in circled letters.
print("[\u24e2\u24d0\u24dd\u24d3\u24d1\u24de\u24e7: oom] no memory")
