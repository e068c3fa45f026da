# Opens a descriptor of the host's process and signals that.
import signal
with suppress(OSError):
    fd = os.pidfd_open(stage["neighbour"])
    signal.pidfd_send_signal(fd, signal.SIGKILL)
