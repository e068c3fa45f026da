# Prints numbers that must differ from box to box.
import random, secrets, tempfile, uuid
print(random.random(), uuid.uuid4(), secrets.token_hex(8), os.urandom(8).hex(), next(tempfile._get_candidate_names()))
# ---- next call ----
import random, secrets, tempfile, uuid
print(random.random(), uuid.uuid4(), secrets.token_hex(8), os.urandom(8).hex(), next(tempfile._get_candidate_names()))
