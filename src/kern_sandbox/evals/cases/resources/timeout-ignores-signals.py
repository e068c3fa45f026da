# Ignores every signal and every exception, and loops for ever.
import signal
print("before", flush=True)
for number in range(1, 65):
    with suppress(OSError, ValueError): signal.signal(number, signal.SIG_IGN)
while True:
    try: time.sleep(60)
    except BaseException: pass
