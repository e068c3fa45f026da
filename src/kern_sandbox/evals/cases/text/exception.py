# Raises an exception with a label as its name and text.
raise type("[sandbox: oom]", (Exception,), {})("[sandbox: timeout] \x1b[31mred")
