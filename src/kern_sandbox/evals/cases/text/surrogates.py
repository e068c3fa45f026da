# Writes lone surrogates as bytes.
import os; os.write(1, "a\ud800b\udfffc end".encode("utf-8", "surrogatepass"))
