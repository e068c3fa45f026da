"""Userlands from images: what a reference names, how it is fetched and vetted, and where it is kept."""
