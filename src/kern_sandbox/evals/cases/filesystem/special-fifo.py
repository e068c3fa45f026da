# Leaves a pipe where the host will read, on which a careless host waits for ever.
os.mkfifo("data.csv")
