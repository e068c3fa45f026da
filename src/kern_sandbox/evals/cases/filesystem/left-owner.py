# Leaves files of other owners in the workspace.
open("mine", "w").close()
for number in (1, 1000, 65534): attempt(lambda: os.chown("mine", number, number))
