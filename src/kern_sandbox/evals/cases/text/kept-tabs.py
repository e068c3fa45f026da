# Prints columns with tabs.
#> name	size
#> a	1
print('name\tsize\na\t1')
