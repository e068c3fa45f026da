# Leaves a child that is stopped.
null = open(os.devnull, "r+")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", stage["token"]], stdin=null, stdout=null, stderr=null, start_new_session=True)
wait_until_shown()
os.kill(child.pid, 19)
