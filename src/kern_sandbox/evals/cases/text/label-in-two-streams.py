# Divides a label between standard output and standard error.
import sys
sys.stdout.write("[sand"); sys.stdout.flush()
sys.stderr.write("box: oom] no memory\n")
