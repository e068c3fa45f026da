# Lets a shell read the file by several names.
cat "$secret" "/proc/1/root$secret" "/proc/self/root/../../$secret" "/proc/$PPID/root$secret" "/proc/$PPID/cwd/$secret" 2>&1 || true
