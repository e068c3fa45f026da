# Calls the shell, whose output comes in its place.
#> before
#> in the shell
#> after
import os
print("before", flush=True)
os.system("echo in the shell")
print("after")
