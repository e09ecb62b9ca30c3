"""The tables and figures of Chen et al., 2019, on the paper's data and models."""
