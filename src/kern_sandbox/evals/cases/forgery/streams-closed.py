# Closes its streams and ends with a status of its own.
for number in range(64):
    with suppress(OSError): os.close(number)
os._exit(7)
