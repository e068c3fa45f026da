# Shows the host its capabilities.
meet()
