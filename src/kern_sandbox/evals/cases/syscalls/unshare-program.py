# Lets the program unshare make a namespace.
ended = subprocess.run(["unshare", "-Ur", "true"], stderr=subprocess.DEVNULL).returncode
meet("answer", "unshare", "EPERM" if ended else "ok")
