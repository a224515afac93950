"""Deep recognizers of surgical phases and tools: networks, training, data and prediction.

The probabilistic library, ``hmmjax``, never imports this package. A predictions file connects the two:
``python -m models.predict`` writes it and ``hmmjax stabilize`` reads it.
"""
