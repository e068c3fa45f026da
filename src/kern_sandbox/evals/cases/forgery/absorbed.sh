# Absorbs that a forbidden call stopped a program, and ends with success.
python3 -c 'import ctypes, platform; ctypes.CDLL(None).syscall({"x86_64": 250}.get(platform.machine(), 219), 0, -3, 0)' 2> /dev/null
exit 0
