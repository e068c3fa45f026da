# Makes a virtual environment without pip.
#> True
import subprocess, sys
subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], check=True)
print(subprocess.run(["env/bin/python", "-c", "import sys; print(sys.prefix != sys.base_prefix)"], capture_output=True, text=True).stdout.strip())
