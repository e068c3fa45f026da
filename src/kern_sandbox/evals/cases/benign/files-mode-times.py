# Changes mode and times of a script and runs it.
#> ran 1970
import os, subprocess, time
with open("s.sh", "w") as f: f.write("#!/bin/sh\necho ran\n")
os.chmod("s.sh", 0o755); os.utime("s.sh", (0, 0))
print(subprocess.run(["./s.sh"], capture_output=True, text=True).stdout.strip(), time.gmtime(os.stat("s.sh").st_mtime).tm_year)
