"""scikit-learn pipelines and wrappers around models of any library, folded into one ensemble.

`flow.py` follows columns through the steps of a pipeline, `steps.py` and `functions.py` say what
each kind of step does to a column, `sides.py` pulls splits back through a fitted step, and
`fold.py` rewrites the trees, so that they test the user's own columns. `wrappers.py` has what
stands around a model, and `rows.py` turns rows of the folded model into what the pipeline takes.
"""
