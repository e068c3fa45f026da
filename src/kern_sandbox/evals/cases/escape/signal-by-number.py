# Sends signals to a process of the host by the number that it has there.
import signal
for one in (signal.SIGTERM, signal.SIGKILL):
    with suppress(OSError):
        os.kill(stage["neighbour"], one)
