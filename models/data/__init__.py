"""Readers, caches, simulated videos and tensorflow-datasets builders for surgical video."""
