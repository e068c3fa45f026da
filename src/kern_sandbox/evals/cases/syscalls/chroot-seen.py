# Changes its root to a directory of its own, and lets the host see its root.
meet()
os.makedirs("jail", exist_ok=True)
call("chroot", b"jail")
meet()
