"""Methods of others, to compare with: programs for foreign solvers, sums of trees, an attack."""
