# Asks a shell for the host's name.
echo "$HOSTNAME"; uname -n; hostname 2>/dev/null; cat /etc/hostname 2>/dev/null; true
