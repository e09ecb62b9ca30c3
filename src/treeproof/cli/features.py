"""`treeproof features`: which single features, or sets of features, decide the answer."""

import dataclasses
import json
import math
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.asking import (
    EXIT_UNDECIDED,
    Asking,
    FiniteNumber,
    ball_of,
    data_argument,
    question_options,
    read_rows,
    refuse_options,
)
from treeproof.cli.console import print_json, print_note, printable
from treeproof.cli.options import load_model, model_argument
from treeproof.cli.run_output import check_out, print_csv, print_table
from treeproof.errors import InvalidInput, require_backend

if TYPE_CHECKING:
    from treeproof.results.features import AnchorResults, FeatureResults

_ROWS_SHOWN = 20
_PICTURE_ENDINGS = (".png", ".svg", ".pdf")


@click.command(short_help="Show which single features, or sets of features, decide the answer.")
@model_argument
@data_argument
@click.option(
    "--what",
    type=click.Choice(["radius", "unimportant", "anchors"]),
    default="radius",
    show_default=True,
    help="The radius of each feature alone; features that cannot matter alone; sets that fix it.",
)
@click.option(
    "--eps",
    type=FiniteNumber(min=0.0),
    help="How far features may move, for unimportant and anchors. [default: anywhere]",
)
@click.option(
    "--shape", metavar="HxW", help="Height and width of rows that are images, such as 8x8."
)
@click.option(
    "--picture", metavar="FILE", type=click.Path(), help="Draw the first row (PNG, SVG or PDF)."
)
@question_options
def command(
    model_path: str,
    data_path: str,
    what: str,
    eps: float | None,
    shape: str | None,
    picture: str | None,
    **options: Any,
) -> None:
    """Show for the rows of DATA which features decide the answer of MODEL.

    Everything shown is proved: radii of single features are exact, and the answer cannot change
    while the features of an anchor set keep their values. Categories and missing values never move:
    they are listed, and nothing is claimed about other values of them.
    """
    from treeproof.query.build import refuse_outside

    asking, loading = Asking.split(options)
    pixels = _pixels(shape)
    if picture is not None:
        _check_picture(picture)
    if asking.out is not None:
        check_out(asking.out, "The file")
    if what != "anchors":
        refuse_options(
            ("engine", "time_limit", "node_limit").__contains__,
            f"has no meaning for '--what {what}', which is found without an engine.",
        )
    if what == "radius" and eps is not None:
        raise InvalidInput("--eps is for '--what unimportant' and '--what anchors'.")
    model = load_model(model_path, **loading)
    numbers, rows, labels, scale = read_rows(model, data_path, asking)
    ball = ball_of(model, asking, scale, eps)
    refuse_outside(model.ensemble, rows, ball, numbers)
    results = _ask(model, rows, labels, what, ball, asking)
    results.row = numbers
    if picture is not None:
        from treeproof.report.feature_maps import draw_features, save_figure

        save_figure(draw_features(results, 0, values=rows[0], shape=pixels), picture)
    if asking.out is not None:
        _save(results, asking.out)
    _print(results, asking)
    undecided = int((~results.minimal & results.sufficient).sum()) if what == "anchors" else 0
    if asking.strict and undecided:
        print_note(f"{undecided} sets are not proved minimal (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def _check_picture(path: str) -> None:
    """Refuse, before any work, a picture that could not be drawn."""
    require_backend("matplotlib", "plot")
    check_out(path, "The picture")
    ending = PurePath(path).suffix.lower()
    if ending not in _PICTURE_ENDINGS:
        raise InvalidInput(
            f"The picture '{path}' must end in {', '.join(_PICTURE_ENDINGS)}. Got {ending!r}."
        )


def _pixels(shape: str | None) -> tuple[int, int] | None:
    if shape is None:
        return None
    height, cross, width = shape.lower().partition("x")
    if not cross or not height.isdecimal() or not width.isdecimal():
        raise InvalidInput(f"--shape must have the form HxW, such as 8x8. Got {shape!r}.")
    return int(height), int(width)


def _ask(model: Any, rows: Any, labels: Any, what: str, ball: Any, asking: Asking) -> Any:
    """Put the question to the library."""
    import treeproof

    jobs = asking.jobs or -1
    goal = None if asking.score_change is None else treeproof.ScoreChange(asking.score_change)
    shared: dict[str, Any] = {
        "goal": goal,
        "n_jobs": jobs,
        "arithmetic": asking.threat.arithmetic,
    }
    if what == "radius":
        return treeproof.feature_radius(model, rows, labels, ball, **shared)
    if ball.eps is None:
        # Anywhere within the bounds of the data; frozen features keep the row's values.
        ball = dataclasses.replace(ball, eps=math.inf, scale=None)
    if what == "unimportant":
        return treeproof.unimportant_features(model, rows, labels, ball, **shared)
    return treeproof.anchor_features(
        model, rows, labels, ball, engine=asking.engine, **shared, **asking.limits
    )


def _save(results: "FeatureResults | AnchorResults", path: str) -> None:
    """Write one JSON record per line, the question first."""
    from treeproof.query.description import plain
    from treeproof.results.run_file import replacing

    lines = [{"record": "header"} | _header(results)]
    lines += [{"record": "row"} | record for record in results.records()]
    text = "".join(json.dumps(plain(line)) + "\n" for line in lines)
    with replacing(path, "The file") as file:
        file.write(text.encode("utf-8"))


def _header(results: "FeatureResults | AnchorResults") -> dict[str, Any]:
    """What was asked, and what stayed as it was."""
    from treeproof.query.arithmetic import in_words

    kept = [
        {"row": int(number), "features": names}
        for place, number in enumerate(results.row)
        if (names := results.kept_names(place))
    ]
    arithmetic = in_words({"question": results.question, "model": results.question})
    return {"question": results.question, "arithmetic": arithmetic, "kept_fixed": kept}


def _print(results: Any, asking: Asking) -> None:
    from treeproof.query.description import plain

    records = results.records()
    if asking.output_format == "json":
        print_json(_header(results) | {"records": plain(records)})
        return
    if asking.output_format == "csv":
        for line in results.summary().splitlines():
            print_note(line)
        columns = list(records[0]) if records else []
        print_csv(columns, ([_cell(record[name]) for name in columns] for record in records))
        return
    for line in results.summary().splitlines():
        click.echo(printable(line))
    columns, records = _table(records)
    shown = records if asking.all_rows else records[:_ROWS_SHOWN]
    print_table(columns, ([_cell(record[name]) for name in columns] for record in shown))
    if len(records) > len(shown):
        click.echo(f"… {len(records) - len(shown)} more lines (--all-rows shows them)")


def _table(records: list[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and lines for a person: of single features those that matter, nearest first."""
    if records and "features" in records[0]:
        kept = ["kept_fixed"] if any(record["kept_fixed"] for record in records) else []
        return ["row", "label", "size", "minimal", "features", *kept], records
    matter = [record for record in records if not record["unimportant"]]
    matter.sort(key=lambda record: (record["row"], record["radius"]))
    return ["row", "label", "feature", "radius", "attained", "breaking_value"], matter


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.7g}"
    return ", ".join(value) if isinstance(value, list) else value
