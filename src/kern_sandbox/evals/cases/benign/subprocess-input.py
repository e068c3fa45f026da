# Talks to a program over its input.
#> HELLO
import subprocess
print(subprocess.run(["tr", "a-z", "A-Z"], input="hello", capture_output=True, text=True).stdout)
