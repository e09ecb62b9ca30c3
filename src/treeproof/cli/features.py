"""`treeproof features`: which single features, or sets of features, decide the answer."""

import dataclasses
import json
import math
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json, print_note
from treeproof.cli.options import (
    DISTANCE,
    FILE,
    Command,
    data_argument,
    id_option,
    load_model,
    model_argument,
    refuse_options,
)
from treeproof.cli.question_options import QuestionOptions, question_options
from treeproof.cli.run_output import (
    EXIT_UNDECIDED,
    ROWS_SHOWN,
    check_out,
    print_csv,
    print_table,
    progress_bar,
)
from treeproof.errors import InvalidInput, printable, require_backend

if TYPE_CHECKING:
    from treeproof.data.sources import Rows
    from treeproof.results.features import FeatureResults
    from treeproof.results.reasons import Reasons

_PICTURE_ENDINGS = (".png", ".svg", ".pdf")


@click.command(cls=Command, example="treeproof features model.json rows.csv --what anchors")
@model_argument
@data_argument
@click.option(
    "--what",
    type=click.Choice(["radius", "unimportant", "anchors"]),
    default="radius",
    help="The radius of each feature alone; features that cannot matter alone; sets that fix it.",
)
@click.option(
    "--eps",
    type=DISTANCE,
    help="How far features may move, for unimportant and anchors. [default: anywhere]",
)
@click.option(
    "--shape", metavar="HxW", help="Height and width of rows that are images, such as 8x8."
)
@click.option("--picture", metavar="FILE", type=FILE, help="Draw the first row (PNG, SVG or PDF).")
@id_option
@question_options()
def command(
    model_path: str,
    data_path: str,
    what: str,
    eps: float | None,
    shape: str | None,
    picture: str | None,
    **given: Any,
) -> None:
    """Show for the rows of DATA which features decide the answer of MODEL.

    Everything shown is proved: radii of single features are exact, and the answer cannot change
    while the features of an anchor set keep their values. Categories and missing values never move:
    they are listed, and nothing is claimed about other values of them.
    """
    from treeproof.query.build import refuse_outside
    from treeproof.report.images import parse_shape

    options = QuestionOptions.parse(given)
    pixels = None if shape is None else parse_shape(shape)
    if picture is not None:
        check_picture(picture)
    if options.out is not None:
        check_out(options.out, "The file")
    if what != "anchors":
        refuse_options(
            ("engine", "time_limit_s", "node_limit").__contains__,
            f"has no meaning for '--what {what}', which is found without an engine.",
        )
    if what == "radius" and eps is not None:
        raise InvalidInput("--eps is for '--what unimportant' and '--what anchors'.")
    model = load_model(model_path, **options.loading)
    source = options.source(model, data_path)
    rows = options.read_rows(source)
    ball = options.ball(source, eps, has_radius=eps is not None)
    refuse_outside(model.ensemble, rows.values, ball, numbers=rows.number)
    results = _answer(model, rows, what, ball, options)
    results.row, results.id = rows.number, rows.ids
    if picture is not None:
        from treeproof.report.feature_maps import draw_features, save_figure

        save_figure(draw_features(results, 0, values=rows.values[0], shape=pixels), picture)
    if options.out is not None:
        _save(results, options.out)
    _print(results, options)
    undecided = int((~results.minimal & results.sufficient).sum()) if what == "anchors" else 0
    if options.strict and undecided:
        print_note(f"{undecided} sets are not proved minimal (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def check_picture(path: str) -> None:
    """Refuse, before any work, a picture that could not be drawn."""
    require_backend("matplotlib", "plot")
    check_out(path, "The picture")
    ending = PurePath(path).suffix.lower()
    if ending not in _PICTURE_ENDINGS:
        raise InvalidInput(
            f"The picture '{path}' must end in {', '.join(_PICTURE_ENDINGS)}. Got {ending!r}."
        )


def _answer(model: Any, rows: "Rows", what: str, ball: Any, options: QuestionOptions) -> Any:
    """Ask the library."""
    import treeproof

    ask: Any = {
        "radius": treeproof.feature_radius,
        "unimportant": treeproof.unimportant_features,
        "anchors": partial(treeproof.anchor_features, engine=options.engine, **options.limits),
    }[what]
    if what != "radius" and ball.eps is None:
        # Anywhere within the bounds of the data; frozen features keep the row's values.
        is_cost = isinstance(ball, treeproof.Cost)
        no_limit = {"budget": math.inf} if is_cost else {"eps": math.inf, "scale": None}
        ball = dataclasses.replace(ball, **no_limit)
    shared: dict[str, Any] = {"goal": options.goal, "arithmetic": options.threat.arithmetic}
    with progress_bar(len(rows)) as advance:
        shared["progress"] = lambda done, _: advance(done)
        return ask(model, rows.values, rows.labels, ball, n_jobs=options.jobs, **shared)


def _save(results: "FeatureResults | Reasons", path: str) -> None:
    """Write one JSON record per line, the question first."""
    from treeproof.files import replacing
    from treeproof.query.description import plain

    lines = [{"record": "header"} | _header(results)]
    lines += [{"record": "row"} | record for record in results.records()]
    text = "".join(json.dumps(plain(line)) + "\n" for line in lines)
    with replacing(path, "The file") as file:
        file.write(text.encode("utf-8"))


def _header(results: "FeatureResults | Reasons") -> dict[str, Any]:
    """What was asked, and what stayed as it was."""
    from treeproof.query.arithmetic import in_words

    kept = [
        results.known(place) | {"features": names}
        for place in range(len(results))
        if (names := results.kept_names(place))
    ]
    arithmetic = in_words({"question": results.question, "model": results.question})
    return {"question": results.question, "arithmetic": arithmetic, "kept_fixed": kept}


def _print(results: Any, options: QuestionOptions) -> None:
    from treeproof.query.description import plain

    records = results.records()
    if options.output_format == "json":
        print_json(_header(results) | {"records": plain(records)})
        return
    if options.output_format == "csv":
        for line in results.summary().splitlines():
            print_note(line)
        columns = list(records[0]) if records else []
        print_csv(columns, ([_cell(record[name]) for name in columns] for record in records))
        return
    for line in results.summary().splitlines():
        click.echo(printable(line))
    columns, records = _table(records)
    shown = records if options.all_rows else records[:ROWS_SHOWN]
    print_table(columns, ([_cell(record[name]) for name in columns] for record in shown))
    if len(records) > len(shown):
        click.echo(f"… {len(records) - len(shown)} more lines (--all-rows shows them)")


def _table(records: list[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and lines for a person: of single features those that matter, nearest first."""
    first = [name for name in ("row", "id", "label") if records and name in records[0]]
    if records and "features" in records[0]:
        kept = ["kept_fixed"] if any(record["kept_fixed"] for record in records) else []
        return [*first, "size", "minimal", "features", *kept], records
    matter = [record for record in records if not record["unimportant"]]
    matter.sort(key=lambda record: (record["row"], record["radius"]))
    return [*first, "feature", "radius", "attained", "breaking_value"], matter


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.7g}"
    if value is None:
        return ""
    return ", ".join(value) if isinstance(value, list) else value
