"""The engines of the paper and those that it compares with."""
