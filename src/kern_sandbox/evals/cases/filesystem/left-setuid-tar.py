# Unpacks an archive with a set-user-id program into the workspace.
import io, tarfile
raw = io.BytesIO()
with tarfile.open(fileobj=raw, mode="w") as archive:
    member = tarfile.TarInfo("program"); member.mode = 0o4755
    archive.addfile(member)
raw.seek(0)
with tarfile.open(fileobj=raw) as archive:
    attempt(lambda: [os.chmod(m.name, m.mode) for m in archive if not archive.extract(m)])
