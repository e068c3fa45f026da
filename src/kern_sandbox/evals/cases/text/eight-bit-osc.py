# Sets a title by 8-bit codes.
print("before\x9d0;title\x9cafter")
