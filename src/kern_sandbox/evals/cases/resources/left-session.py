# Leaves a child in a session of its own.
null = open(os.devnull, "r+")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", stage["token"]], stdin=null, stdout=null, stderr=null, start_new_session=True)
wait_until_shown()
