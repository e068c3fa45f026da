# Finds, archives and unpacks files.
#> ./a/x
mkdir -p a && echo 1 > a/x && tar czf a.tgz a && rm -r a && tar xzf a.tgz && find . -name x && test "$(cat a/x)" = 1
