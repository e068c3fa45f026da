# Writes a label with the long s, and in capitals.
print("[\u017fandbox: oom] [SANDBOX: OOM] [SandBox: oom] no memory")
