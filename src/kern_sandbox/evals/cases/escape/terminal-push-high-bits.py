# Types into a terminal by a request whose upper bits differ, as CVE-2019-10063 did.
import pty
master, slave = pty.openpty()
got = libc.syscall(ctypes.c_long({"x86_64": 16}.get(platform.machine(), 29)), slave, ctypes.c_long(0x5412 | 1 << 32), b"x")
meet("answer", "TIOCSTI", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
