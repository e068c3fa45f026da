# Writes a table as CSV and sums a column.
#> 60.5
import csv
with open("t.csv", "w", newline="") as f: csv.writer(f).writerows([["name", "price"], ["a", 10.5], ["b", 20], ["c", 30]])
print(sum(float(row["price"]) for row in csv.DictReader(open("t.csv"))))
