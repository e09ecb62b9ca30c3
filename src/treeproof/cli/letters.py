"""`treeproof letters`: letters about rejections, with proved reasons."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from treeproof.cli.console import print_note
from treeproof.cli.options import (
    FILE,
    POSITIVE,
    Command,
    data_argument,
    id_option,
    load_model,
    model_argument,
    refuse_options,
)
from treeproof.cli.question_options import QuestionOptions, question_options
from treeproof.cli.recourse import read_steps
from treeproof.cli.run_output import EXIT_UNDECIDED, check_out
from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    from treeproof.letters import Letter

_ENDINGS = (".txt", ".html", ".json")


@click.command(
    cls=Command,
    example="treeproof letters model.json rows.csv --words letters.toml --out letters.html",
)
@model_argument
@data_argument
@click.option(
    "--words",
    "words_path",
    metavar="FILE",
    type=FILE,
    required=True,
    help="Codes, phrases, and features that are never named, as a TOML file.",
)
@click.option("--ways", type=POSITIVE, default=1, help="Number of different ways in each letter.")
@click.option(
    "--step",
    "steps",
    multiple=True,
    metavar="NAME=STEP",
    help="Let a feature become multiples of a number only, such as amount=100; may be repeated.",
)
@click.option(
    "--evidence",
    "evidence_path",
    metavar="FILE",
    type=FILE,
    help="Save the reasons with proofs that 'treeproof check' verifies.",
)
@id_option
@question_options(formats=("text", "json"))
def command(
    model_path: str,
    data_path: str,
    words_path: str,
    ways: int,
    steps: tuple[str, ...],
    evidence_path: str | None,
    **given: Any,
) -> None:
    """Write a letter for each row of DATA that MODEL does not decide as wanted.

    Reasons fix the decision, whatever all other features are: that is proved. Features that must
    not be named are none of them, and so did not matter. At most four are named, those first that
    could raise the score most. A letter without such reasons is marked, and must not be sent.
    """
    from treeproof.letters import load_letter_words, write_letters

    words, step = load_letter_words(words_path), read_steps(steps)
    options = QuestionOptions.parse(given)
    refuse_options(
        ("engine", "score_change", "arithmetic", "label", "node_limit", "all_rows").__contains__,
        "has no meaning here: reasons are exact, and there is a letter for each row.",
    )
    ending = Path(options.out or "letters.txt").suffix.lower()
    if ending not in _ENDINGS:
        raise InvalidInput(
            "Letters are saved as text (.txt), a page (.html) or JSON (.json). Got"
            f" '{options.out}'."
        )
    for path in filter(None, (options.out, evidence_path)):
        check_out(path, "The file")
    model = load_model(model_path, **options.loading)
    source = options.source(model, data_path)
    rows = options.read_rows(source)
    found = write_letters(
        model,
        rows.values,
        words,
        options.ball(source, None, has_radius=False),
        n_ways=ways,
        step=step,
        ids=None if rows.ids is None else rows.ids.tolist(),
        evidence=evidence_path is not None,
        n_jobs=options.jobs,
        time_limit_s=options.limits.get("time_limit_s", float("inf")),
    )
    if evidence_path is not None and found.reasons is not None:
        found.reasons.row = rows.number[found.reasons.row]
        found.reasons.header["data"] = source.describe()
        found.reasons.save(evidence_path)
    _give(found.letters, options, ending)
    n_open = sum(bool(letter.problem) for letter in found.letters)
    print_note(f"{len(found.letters)} letters, {n_open} of which must not be sent.")
    if n_open and options.strict:
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def _give(letters: "list[Letter]", options: QuestionOptions, ending: str) -> None:
    """Save letters as the ending says, or print them."""
    from treeproof.files import replacing
    from treeproof.letters import letters_page

    records = msgspec.json.encode([letter.record() for letter in letters])
    as_json = msgspec.json.format(records).decode()
    texts = [letter.text() for letter in letters]
    if options.out is not None:
        # A printer begins a new page where a form feed is.
        made = {".html": letters_page(letters), ".txt": "\f".join(texts), ".json": as_json}
        with replacing(options.out, "The file") as file:
            file.write(made[ending].encode("utf-8", "backslashreplace"))
    elif options.output_format == "json":
        click.echo(as_json)
    else:
        click.echo(printable(("\n" + "-" * 72 + "\n\n").join(texts)), nl=False)
