# Asks for the host's name in several ways.
import platform
print(socket.gethostname(), platform.node(), os.uname().nodename)
for path in ("/proc/sys/kernel/hostname", "/etc/hostname"): attempt(lambda: content(path))
