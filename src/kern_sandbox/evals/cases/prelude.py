import ctypes, errno, os, platform, socket, struct, subprocess, sys, time
from contextlib import suppress
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NOWHERE = 1  # a pointer to nowhere: EFAULT says that Linux itself looked at it
NUMBERS = {  # x86_64, aarch64
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220),
    "clone3": (435, 435), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "personality": (135, 92),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "settimeofday": (164, 170), "clock_settime": (227, 112), "syslog": (103, 116),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "fanotify_init": (300, 262), "sethostname": (170, 161),
    "setdomainname": (171, 162), "move_pages": (279, 239), "migrate_pages": (256, 238), "mbind": (237, 235),
    "iopl": (172, -1), "ioperm": (173, -1), "lookup_dcookie": (212, 18), "statmount": (457, 457),
    "listmount": (458, 458), "nfsservctl": (180, 42), "quotactl_fd": (443, 443), "vhangup": (153, 58),
    "io_setup": (206, 0),
}


def call(name, *arguments):
    number = NUMBERS[name][platform.machine() == "aarch64"] if isinstance(name, str) else name
    words = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    got = libc.syscall(ctypes.c_long(number), *words)
    return "ok" if got >= 0 else errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


def meet(*words):
    """Go where the host looks at this process, say something, and come back."""
    place = socket.socket(socket.AF_UNIX)
    place.connect("/workspace/" + stage["meeting"] if os.path.isdir("/workspace") else stage["meeting"])
    place.send(" ".join(map(str, words or ("here",))).encode())
    place.recv(9)
    place.close()


def answer(name, *arguments, label=""):
    """Call, and tell the host what Linux answered."""
    got = call(name, *arguments)
    meet("answer", (label or name).replace(" ", "-"), got)


def attempt(*functions):
    """Print what each gives; an error is an answer too."""
    for function in functions:
        try:
            print(function())
        except Exception as error:
            print(type(error).__name__, error)


def content(path):
    with open(path, "rb") as file:
        return file.read(4096)


def wait_until_shown():
    """Until a process other than this one has this case's token on its command line."""
    for _ in range(1000):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if int(pid) != os.getpid() and stage["token"].encode() in content(f"/proc/{pid}/cmdline"):
                    return
        time.sleep(0.01)
