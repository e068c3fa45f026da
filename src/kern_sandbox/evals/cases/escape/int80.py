# Makes a system call by its i386 number, which a filter for x86_64 does not know.
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
meet("answer", "int80", "ok" if got == os.getpid() else "ENOSYS")
