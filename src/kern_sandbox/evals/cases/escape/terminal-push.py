# Types into a terminal on behalf of its user.
import fcntl, pty, termios
master, slave = pty.openpty()
got = "ok"
try: fcntl.ioctl(slave, termios.TIOCSTI, b"x")
except OSError as error: got = errno.errorcode[error.errno]
meet("answer", "TIOCSTI", got)
