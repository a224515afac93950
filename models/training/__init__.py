"""Training of recognition systems: `fit` runs what a `Config` describes (``python -m models.train``)."""
