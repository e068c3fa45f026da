# Redraws a progress bar five thousand times.
import sys
for i in range(5001): sys.stderr.write(f"\r{i / 50:5.1f}% |" + "#" * (i // 100))
print()
