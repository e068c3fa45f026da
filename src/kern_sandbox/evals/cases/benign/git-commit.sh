# Makes a repository, commits and looks at the log.
#> first
git init -q . 2>/dev/null && git config user.name x && git config user.email x@example.com
echo 1 > f && git add f && git commit -qm first && git log --format=%s
