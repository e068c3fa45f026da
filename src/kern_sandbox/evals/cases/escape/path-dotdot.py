# Climbs out of the root with more dots than any path has parts.
for start in ("/..", "/" + "../" * 60, "/workspace/" + "../" * 60, "/usr/.." * 3):
    attempt(lambda: content(start + stage["secret"]))
