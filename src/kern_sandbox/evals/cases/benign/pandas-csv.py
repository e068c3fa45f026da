# Reads, joins and writes CSV with pandas.
#> 2 30.0
import pandas as pd
pd.DataFrame({"id": [1, 2], "p": [10.0, 20.0]}).to_csv("p.csv", index=False)
df = pd.read_csv("p.csv").merge(pd.DataFrame({"id": [1, 2], "n": ["x", "y"]}))
print(len(df), df["p"].sum())
