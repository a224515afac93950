"""The complete pipeline on simulated surgeries, from videos to stabilized predictions: ``python -m models.demo``."""
