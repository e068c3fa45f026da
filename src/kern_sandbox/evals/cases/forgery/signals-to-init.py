# Sends init every signal, and ends with a status of its own.
for number in range(1, 65):
    with suppress(OSError): os.kill(1, number)
os._exit(7)
