# Shows the host its supplementary groups.
meet()
