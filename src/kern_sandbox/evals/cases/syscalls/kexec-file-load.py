# Loads another kernel from a file.
answer("kexec_file_load", -1, -1, 0, 0, 99)
