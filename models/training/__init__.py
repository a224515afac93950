"""Training of recognition systems: `models.training.loop.fit` runs what a `models.settings.Config` describes."""
