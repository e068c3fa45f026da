# Hides where a link leads.
print("\x1b]8;;https://example.invalid/?q=secret\x1b\\click\x1b]8;;\x1b\\ here")
