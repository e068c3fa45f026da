# Counts words in Perl.
#> 3
echo 'one two three' | perl -ne 'print scalar(split), "\n"'
