# Compiles and runs a program in C.
#> 42
printf '#include <stdio.h>\nint main(void) { printf("%%d\\n", 6 * 7); return 0; }\n' > a.c
gcc -O1 -o a a.c && ./a
