"""Runs in the environment of kern-sandbox 0.2.49: one request as JSON on standard input, its answer on standard output."""

import json
import sys

import kern_sandbox

request = json.load(sys.stdin)
with kern_sandbox.Sandbox(workspace=request["workspace"], **request["options"]) as sandbox:
    if request["verb"] == "run":
        result = sandbox.run_code(request["code"], language=request["language"])
        fault = result.fault and {"type": result.fault.type, "message": str(result.fault.message)}
        answer = {"stdout": result.stdout, "stderr": result.stderr, "exit_code": result.exit_code, "fault": fault}
    else:
        try:
            if request["verb"] == "read":
                data = sandbox.read_file(request["path"])
                answer = {"data": data.decode("utf-8", "replace") if isinstance(data, bytes) else data}
            else:
                sandbox.write_file(request["path"], request["data"])
                answer = {}
        except Exception as error:  # whatever that version raises is a refusal
            answer = {"refused": str(error)}
json.dump(answer, sys.stdout)
