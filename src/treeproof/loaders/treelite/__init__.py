"""treelite: live models and checkpoints."""
