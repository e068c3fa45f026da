# Writes and reads JSON lines.
#> 3 6
import json
with open("rows.jsonl", "w") as f:
    for i in range(1, 4): f.write(json.dumps({"n": i, "t": "ü"}) + "\n")
rows = [json.loads(line) for line in open("rows.jsonl")]
print(len(rows), sum(r["n"] for r in rows))
