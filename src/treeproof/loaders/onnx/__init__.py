"""ONNX files: the tree operators of ai.onnx.ml as onnxruntime computes them, and those around.

`format.py` reads the file, `columns.py` follows the columns of a row to the trees, `trees.py` reads
the trees, `scores.py` says what becomes of their sums, and `loader.py` is the way in.
"""
