# Groups and sorts a table with pandas.
#> {'a': 4, 'b': 2}
import pandas as pd
df = pd.DataFrame({"k": list("aba"), "v": [1, 2, 3]})
print({k: int(v) for k, v in df.groupby("k")["v"].sum().items()})
