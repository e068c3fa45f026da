# Sends application, privacy and start-of-string commands.
print("\x1b_secret\x1b\\\x1b^secret\x1b\\\x1bXsecret\x1b\\after")
