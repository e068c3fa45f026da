# Lets bash open a connection by its path.
{ echo "$token" > "/dev/tcp/127.0.0.1/$tcp"; } 2>&1; true
