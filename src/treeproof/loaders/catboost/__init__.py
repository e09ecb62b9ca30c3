"""CatBoost: live models, .cbm and JSON files."""
