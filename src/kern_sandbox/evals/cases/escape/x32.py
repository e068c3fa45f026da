# Makes a system call by its x32 number, which has bit 30 set.
meet("answer", "x32", call(0x40000000 + 39))
