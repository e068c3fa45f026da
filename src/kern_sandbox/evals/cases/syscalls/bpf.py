# Makes a map of eBPF.
answer("bpf", 0, NOWHERE, 8)
