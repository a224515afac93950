"""The paper's tables: systems x scenarios x emission families, from one file, resumed where they stopped.

    python -m models.experiment models/experiment/plans/simsurg.yaml

`plan` reads the file, `videos` finds or draws the videos and labels them as each scenario does, `cell` trains one
system and predicts, `stabilize` learns the hidden Markov model from what was labeled and makes M_H of M, `figures`
measures, and `report` writes the table and the picture.
"""
