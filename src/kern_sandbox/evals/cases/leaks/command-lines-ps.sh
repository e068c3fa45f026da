# Lets ps list all processes.
ps -ewwo args 2>&1 || cat /proc/[0-9]*/cmdline
