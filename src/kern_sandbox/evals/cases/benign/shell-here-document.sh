# Uses here documents, functions and traps.
#> hello box
#> bye
trap 'echo bye' EXIT
greet() { cat <<END
hello $1
END
}
greet box
