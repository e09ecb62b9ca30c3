"""`treeproof inspect`: what was understood of a model."""

from typing import Any

import click

from treeproof.cli.console import console, print_json
from treeproof.cli.options import Command, load_model, load_options, model_argument
from treeproof.errors import printable


@click.command(cls=Command, example="treeproof inspect model.json")
@model_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@load_options
def command(model_path: str, as_json: bool, **options: Any) -> None:
    """Show what was understood of the model file MODEL.

    Library, objective, classes, sizes, the exact rules for splits, sums, decisions, ties and
    missing values, and whether the model agrees with its own library bit for bit.
    """
    from rich.table import Table
    from rich.text import Text

    from treeproof.model.inspection import summary_lines

    described = load_model(model_path, **options).inspect()
    if as_json:
        print_json(described)
        return
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for caption, text in summary_lines(described):
        style = "yellow" if caption == "note" else ""
        table.add_row(Text(caption), Text(printable(text), style=style))
    console().print(table)
