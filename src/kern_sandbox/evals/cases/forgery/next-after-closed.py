# Closes and replaces its streams, after which the next call must work.
sys.stdout.close()
os.close(1); os.close(2)
sys.stdout = sys.stderr = None
# ---- next call ----
print(1)
