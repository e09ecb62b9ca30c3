"""``python -m treeproof``: the command line, where its script is not on the path."""

from treeproof.cli import run

if __name__ == "__main__":
    run()
