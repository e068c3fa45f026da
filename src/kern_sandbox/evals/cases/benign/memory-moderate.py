# Uses two hundred megabytes and gives them back.
#> 209715200 0
x = bytearray(b"x") * (200 << 20)
print(len(x), end=" "); del x
print(0)
