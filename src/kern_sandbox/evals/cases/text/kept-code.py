# Prints code with brackets and angles.
#> if a[i] < b[j]: return {"x": f"{y!r}"}  # <tag> & more
print('if a[i] < b[j]: return {"x": f"{y!r}"}  # <tag> & more')
