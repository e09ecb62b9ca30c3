"""treeproof: exact robustness proofs for tree ensembles."""
