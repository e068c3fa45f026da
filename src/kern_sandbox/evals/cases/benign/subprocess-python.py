# Starts another interpreter.
#> 42
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "print(6*7)"], capture_output=True, text=True, check=True).stdout.strip())
