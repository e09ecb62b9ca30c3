"""The exact engine: factor problem, dual bound, witnesses, search, proofs, and the attack."""
