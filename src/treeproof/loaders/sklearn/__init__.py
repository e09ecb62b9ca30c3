"""scikit-learn: live estimators and .skops files.

`trees.py` and `boosting.py` translate the families of estimators, `categories.py` the columns of
HistGradientBoosting, `shared.py` what they have in common; `skops.py` opens files.
"""
