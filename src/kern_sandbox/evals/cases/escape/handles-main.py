# Shows the host which descriptors it holds.
meet()
