"""The single-threaded process that makes boxes, and the client's way to it."""
