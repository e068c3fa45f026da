# Catches warnings and logs to a file.
#> 1 WARNING:root:careful
import logging, warnings
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always"); warnings.warn("old")
logging.basicConfig(filename="log", level=logging.INFO); logging.warning("careful")
logging.shutdown()
print(len(w), open("log").read().strip())
