"""Whether evidence proves its claim, in exact arithmetic and without any engine."""
