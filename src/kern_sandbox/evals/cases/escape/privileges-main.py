# Shows the host whether it may gain privileges by exec.
meet()
