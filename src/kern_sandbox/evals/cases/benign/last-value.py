# Ends with a value, as a cell of a notebook does.
{"answer": [1, 2, 3]}
