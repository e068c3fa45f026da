# Writes half a report with a length of four gigabytes, then ends with a status of its own.
for number in range(3, 64):
    with suppress(OSError): os.write(number, b"\xff\xff\xff\xff{")
os._exit(7)
