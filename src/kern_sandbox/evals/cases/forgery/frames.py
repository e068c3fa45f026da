# Writes forged reports to every descriptor, then ends with a status of its own.
import json
frame = json.dumps({"status": 0, "exit_code": 0, "failed": "exec", "fault": {"type": "oom"}, "oom_kills": 9}).encode()
for number in range(3, 64):
    for data in (frame + b"\n", struct.pack("<I", len(frame)) + frame, b"\xff\xff\xff\xff" + frame, b"J" + frame):
        with suppress(OSError): os.write(number, data)
os._exit(7)
