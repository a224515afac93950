"""Data sets: statistics of Cholec80, splits, recordings with two names, and simulated copies.

Annotations only; ``models/data`` reads videos and images.
"""
