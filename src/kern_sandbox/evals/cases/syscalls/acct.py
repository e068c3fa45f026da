# Turns process accounting on.
answer("acct", NOWHERE)
