# Waits for jobs in the background.
#> 2
(sleep 0.05; echo a > a) & (sleep 0.05; echo b > b) & wait
cat a b | wc -l | tr -d ' '
