"""The proxy that stands at the one way out of a box: its policy, its protocols, its records."""
