"""The algorithms of Chen et al. (2019), under the names that the paper gives them.

single_tree.py  section 3.1: a single tree in one walk (Algorithm 3)
cliques.py      section 3.2: cliques of leaf boxes (Algorithm 1), exact
multilevel.py   section 3.3: bounds level by level (Algorithm 2; eq. 5, 6 and 7)

Their loops are in ``treeproof.kernels.paper``, the paper's search for radii is
`treeproof.PaperProtocol`, and docs/explanation/other-engines.md tells how they work.
"""
