"""`treeproof convert`: save a model in treeproof's own format."""

from typing import Any

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import FILE, Command, load_model, load_options, model_argument
from treeproof.cli.run_output import check_out


@click.command(cls=Command, example="treeproof convert model.json model.treeproof")
@model_argument
@click.argument("out_path", metavar="OUT", type=FILE)
@load_options
def command(model_path: str, out_path: str, **options: Any) -> None:
    """Load the model file MODEL and save it as OUT.

    The saved file needs no library to be read, holds the same bits, and never runs anything when it
    is opened. By convention its name ends in .treeproof.
    """
    check_out(out_path, "The model file")
    model = load_model(model_path, **options)
    model.save(out_path)
    print_note(f"saved {model!r} as {out_path}")
