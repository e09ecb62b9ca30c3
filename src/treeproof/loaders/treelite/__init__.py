"""treelite: live models and checkpoints; `format.py` reads and checks a checkpoint."""
