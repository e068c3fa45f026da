# Maps a file that is shown read-only, shared and writable.
import mmap
def mapped():
    with open(stage["shown"] + "/writable", "r+b") as file:
        mmap.mmap(file.fileno(), 0)[:5] = b"broke"
attempt(mapped)
