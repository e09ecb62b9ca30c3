"""Many rows: reading files of any size, runs that survive, workers."""
