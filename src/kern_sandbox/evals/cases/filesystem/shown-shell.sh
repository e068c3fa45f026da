# Lets a shell write, remove and make files where all is shown read-only.
for word in 'echo broken > writable' 'rm -f writable' 'touch new' 'mv program moved' 'chmod 000 secret'; do (cd "$shown" && eval "$word") 2>&1; done; true
