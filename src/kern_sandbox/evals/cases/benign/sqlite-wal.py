# Uses a database with a write-ahead log from two connections.
#> wal 1000
import sqlite3
a = sqlite3.connect("wal.db")
mode = a.execute("pragma journal_mode=wal").fetchone()[0]
a.execute("create table t(x)")
with a: a.executemany("insert into t values (?)", ((i,) for i in range(1000)))
b = sqlite3.connect("wal.db")
print(mode, b.execute("select count(*) from t").fetchone()[0])
