# Opens a file system to be mounted.
answer("fsopen", NOWHERE, 0)
