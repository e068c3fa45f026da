# Runs programs with a pipe between them.
#> 3
import subprocess
a = subprocess.Popen(["printf", "a\nb\nc\n"], stdout=subprocess.PIPE)
print(subprocess.run(["wc", "-l"], stdin=a.stdout, capture_output=True, text=True).stdout.strip())
a.wait()
