# Leaves a busy child behind when its time is over.
null = open(os.devnull, "r+")
subprocess.Popen([sys.executable, "-c", "while True: pass", stage["token"]], stdin=null, stdout=null, stderr=null, start_new_session=True)
wait_until_shown()
print("before", flush=True)
time.sleep(1000)
