# Sleeps for ever in a shell.
echo before; sleep 1000; exit 3
