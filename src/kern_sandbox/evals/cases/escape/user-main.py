# Shows the host which user it is.
meet()
