# Sums a column with awk.
#> 42
printf '%s\n' 10 20 12 | awk '{ s += $1 } END { print s }'
