"""Questions made of many questions: radii, features."""
