# Shows the host whether a filter lies on its threads.
meet()
