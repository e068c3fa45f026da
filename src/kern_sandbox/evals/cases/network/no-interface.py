# Shows the host its interfaces and routes.
meet()
