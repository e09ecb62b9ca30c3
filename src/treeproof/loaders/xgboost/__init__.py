"""XGBoost: live models, JSON and UBJSON files, text dumps."""
