# Stops a program that takes too long.
#> too long
import subprocess
try: subprocess.run(["sleep", "30"], timeout=0.2)
except subprocess.TimeoutExpired: print("too long")
