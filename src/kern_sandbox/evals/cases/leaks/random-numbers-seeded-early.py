# Prints numbers of generators that were made before any code ran.
import random
print(random.Random().random(), random.SystemRandom().random(), random.getrandbits(64))
# ---- next call ----
import random
print(random.Random().random(), random.SystemRandom().random(), random.getrandbits(64))
