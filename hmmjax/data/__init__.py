"""What is known of data sets: Cholec80's statistics, splits, which recordings go by two names, simulated copies.

Annotations only; videos and pictures are the business of ``models/data``.
"""
