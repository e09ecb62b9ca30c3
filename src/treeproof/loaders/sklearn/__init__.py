"""scikit-learn: live estimators and skops files."""
