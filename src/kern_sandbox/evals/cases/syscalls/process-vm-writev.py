# Writes the memory of a process.
answer("process_vm_writev", 0x7FFFFFFF, NOWHERE, 1, NOWHERE, 1, 0)
