# Loops, substitutes and counts in a shell.
#> 1 2 3
#> 6
for i in 1 2 3; do printf '%s ' "$i"; done | sed 's/ $//'; echo
echo $((1 + 2 + 3))
