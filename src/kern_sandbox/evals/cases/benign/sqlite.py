# Makes a database file, joins two tables.
#> [('ann', 30.0), ('bob', 5.0)]
import sqlite3
db = sqlite3.connect("shop.db")
db.executescript("create table u(id, name); create table o(u, price); insert into u values (1,'ann'),(2,'bob'); insert into o values (1,10.0),(1,20.0),(2,5.0);")
print(db.execute("select name, sum(price) from u join o on o.u = u.id group by name order by name").fetchall())
db.commit()
