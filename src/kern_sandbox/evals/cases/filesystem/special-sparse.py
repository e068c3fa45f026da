# Leaves a file that claims to be a terabyte.
with open("data.csv", "wb") as file:
    try: file.truncate(1 << 40)
    except OSError: file.truncate(1 << 30)
