# Writes a label in mathematical letters.
print("[\U0001d42c\U0001d41a\U0001d427\U0001d41d\U0001d41b\U0001d428\U0001d431: oom] no memory")
