# Splits a label with a combining joiner and vowels that are not drawn.
print("[sand\u034fbo\u17b4x: oom] no memory")
