"""How questions are answered: one module per engine, `registry.py` lists them."""
