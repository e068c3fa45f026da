# Absorbs that a program was killed for lack of memory, and ends with success.
python3 -c 'kept = []
while True: kept.append(bytearray(1 << 22))' 2> /dev/null
exit 0
