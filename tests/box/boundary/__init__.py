"""The boundary, attacked from inside: claims, probes, and engines weakened in exactly one layer as their controls."""
