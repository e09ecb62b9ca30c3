"""Pages from saved results; nothing here runs an engine."""
