"""Models of YDF (Yggdrasil Decision Forests): live ones, and the directories that it saves.

`format.py` reads a directory without YDF, and `loader.py` says what the model means.
"""
