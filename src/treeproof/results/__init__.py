"""What was found: verdicts, bounds, witnesses."""
