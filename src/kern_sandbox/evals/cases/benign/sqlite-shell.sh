# Asks a database by its shell.
#> 6
sqlite3 x.db 'create table t(x); insert into t values (1),(2),(3); select sum(x) from t;'
