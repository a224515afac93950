"""Internals shared by all modules. Nothing here is public."""
