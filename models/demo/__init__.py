"""The whole chain on simulated surgeries: pictures, a small network, a coupled HMM. ``python -m models.demo``."""
