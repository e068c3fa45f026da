# Pastes on a text console, as CVE-2023-28100 did.
import fcntl, pty
master, slave = pty.openpty()
got = "ok"
try: fcntl.ioctl(slave, 0x541C, b"\x02")
except OSError as error: got = errno.errorcode[error.errno]
meet("answer", "TIOCLINUX", got)
