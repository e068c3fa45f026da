# Overwrites a program that is shown read-only while it runs.
attempt(lambda: open(stage["shown"] + "/program", "r+b").write(b"#!/bin/echo broken"))
