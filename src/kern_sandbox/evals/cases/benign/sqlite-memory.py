# Uses a database in memory with full text.
#> 2
import sqlite3
db = sqlite3.connect(":memory:")
db.execute("create table t(x)")
db.executemany("insert into t values (?)", [("apple pie",), ("banana",), ("apple tart",)])
print(db.execute("select count(*) from t where x like 'apple%'").fetchone()[0])
