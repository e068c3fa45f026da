# Draws a picture with terminal codes.
print("\x1b]1337;File=inline=1:AAAA\x07\x1b_Ga=T;AAAA\x1b\\\x1bPq#0;2;0;0;0\x1b\\after")
