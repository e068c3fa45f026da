# Sorts, cuts and counts text with the usual tools.
#> 2 apple
#> 1 banana
printf 'banana 1\napple 2\napple 3\n' > f.txt
cut -d' ' -f1 f.txt | sort | uniq -c | sort -rn | awk '{print $1, $2}'
