# Shows the host its limits.
meet()
