# Separates a label by vertical tab, form feed and next line.
print("a\x0b[sandbox: oom]\x0c[sandbox: oom]\x85[sandbox: oom]\u2028[sandbox: oom]\u2029[sandbox: oom] end")
