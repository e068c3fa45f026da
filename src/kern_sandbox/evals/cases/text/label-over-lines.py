# Divides a label by spaces and lines.
print("[ sandbox : oom]\n[\tsandbox\t:\toom]\n[\nsandbox: oom]\nend")
