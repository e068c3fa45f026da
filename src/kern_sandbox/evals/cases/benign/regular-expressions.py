# Finds addresses in text.
#> ['ann@example.com', 'bob@example.org']
import re
print(re.findall(r"\b\w+@[\w.]+\w", "ann@example.com, bob@example.org; nobody@"))
