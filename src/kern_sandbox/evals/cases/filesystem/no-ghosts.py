# Does nothing, after which nothing should be in the workspace.
pass
