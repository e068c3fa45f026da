# Shows the host its namespaces.
meet()
