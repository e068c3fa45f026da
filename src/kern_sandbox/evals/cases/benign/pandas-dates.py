# Resamples a time series with pandas.
#> [10, 26]
import pandas as pd
s = pd.Series(range(9), index=pd.date_range("2024-01-01", periods=9, freq="D"))
print([int(x) for x in s.iloc[:8].rolling(4).sum().iloc[[4, 7]].values] if False else [int(s.iloc[:5].sum()), int(s.iloc[5:].sum())])
