# Moves pages between nodes.
answer("move_pages", 0, 1, NOWHERE, 0, NOWHERE, 0)
