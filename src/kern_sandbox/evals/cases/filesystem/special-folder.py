# Leaves a directory where the host will read a file.
os.makedirs("data.csv/deeper")
