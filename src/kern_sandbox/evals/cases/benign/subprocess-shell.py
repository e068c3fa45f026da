# Runs a shell line and looks at its status.
#> 3 out err
import subprocess
r = subprocess.run("echo out; echo err >&2; exit 3", shell=True, capture_output=True, text=True)
print(r.returncode, r.stdout.strip(), r.stderr.strip())
