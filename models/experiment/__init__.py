"""The paper's tables: systems x scenarios x emission families, from one plan file, resumable.

    python -m models.experiment models/experiment/plans/simsurg.yaml

`plan` reads the file, `videos` finds or simulates the videos and labels them as each scenario does, `cell` trains a
system, predicts and stabilizes, `measure` computes the metrics, and `report` writes the table and the plot. The hidden
Markov model is learned in `models.stabilize`.
"""
