# Tries to bring an interface and a route up, and shows the host what is there.
import fcntl
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name in (b"eth0", b"tun0", b"dummy0"):
    with suppress(OSError): fcntl.ioctl(one, 0x8914, struct.pack("16sH14s", name, 0x1041, b""))
with suppress(OSError):
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"tun0", 1))
meet()
