# Leaves a program by nohup and setsid.
nohup setsid python3 -c 'import time; time.sleep(60)' "$token" > /dev/null 2>&1 < /dev/null &
until grep -qsa sleep /proc/$!/cmdline; do sleep 0.01; done
