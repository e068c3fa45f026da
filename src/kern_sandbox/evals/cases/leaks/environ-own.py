# Prints its own environment.
print(dict(os.environ), os.getenv(stage["environment"]))
