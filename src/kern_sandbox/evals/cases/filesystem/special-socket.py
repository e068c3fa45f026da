# Leaves a socket where the host will read.
server = socket.socket(socket.AF_UNIX); server.bind("data.csv")
