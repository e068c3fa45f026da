# Compiles and runs a program in C with threads.
#> 3
cat > t.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *one(void *p) { return p; }
int main(void) { pthread_t t; void *got; pthread_create(&t, 0, one, (void *)3L); pthread_join(t, &got); printf("%ld\n", (long)got); }
END
gcc -pthread -o t t.c && ./t
