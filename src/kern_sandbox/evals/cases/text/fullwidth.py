# Writes a label in fullwidth letters.
print("\uff3b\uff53\uff41\uff4e\uff44\uff42\uff4f\uff58\uff1a oom\uff3d no memory")
