# Prints labels so that one lies where the text is cut.
print(("[sandbox: oom]" * 400000)[3:] + "end")
