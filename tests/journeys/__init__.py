"""Whole ways from raw data to what is sent, as people go them: in a shell, with files and pages."""
