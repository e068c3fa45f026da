# Lets a shell remove and replace files of the host.
rm -rf "$victim"/* 2>&1; echo broken > "$victim/writable"; true
