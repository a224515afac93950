"""Deep recognizers of surgical phases and tools: networks, training, data and prediction.

The probabilistic core, ``hmmjax``, never imports this package. What joins the two is a predictions file
(``python -m models.predict`` writes it, ``hmmjax stabilize`` reads it).
"""
