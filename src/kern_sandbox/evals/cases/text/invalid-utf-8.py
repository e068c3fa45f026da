# Writes bytes that are no UTF-8.
import os; os.write(1, b"ok \xf0\x28 \xff\xfe\x80 end\n")
