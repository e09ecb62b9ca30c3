"""scikit-learn: live estimators and .skops files.

`trees.py` and `boosting.py` translate the families of estimators, `shared.py` is what they have in
common; `skops.py` opens files.
"""
