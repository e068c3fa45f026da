# Looks at its home, its user and its encoding.
#> True True utf-8
import getpass, locale, os, sys
print(os.access(os.path.expanduser("~"), os.W_OK), bool(getpass.getuser()), sys.getfilesystemencoding())
