"""`treeproof compat`: answers a configuration file of treeVerification, the paper's own program."""

import json
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from treeproof.cli.console import print_note, printable
from treeproof.cli.options import FILE, POSITIVE, Command, absent_option
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.prediction import Model
    from treeproof.results.results import Results

Absent = Literal["zero", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The keys of a configuration file, under their own names; those without a default are needed.

    Paths are complete.
    """

    inputs: str
    model: str
    start_idx: int
    num_attack: int
    eps_init: float
    max_clique: int
    max_search: int
    max_level: int
    num_classes: int
    dp: int = 0
    one_attr: int | None = None
    feature_start: int = 1


@click.command(cls=Command, example="treeproof compat config.json --out run.jsonl")
@click.argument("config_path", metavar="CONFIG", type=FILE)
@absent_option
@click.option("--jobs", type=POSITIVE, default=1, help="Number of threads.")
@click.option("--out", metavar="RUN", type=FILE, help="Save the answers as a run file.")
def command(config_path: str, absent: Absent, jobs: int, out: str | None) -> None:
    """Answer CONFIG, a configuration file of treeVerification, and print its two figures.

    The bounds are those of its algorithm with the same first radius, clique size, levels and
    steps. Paths are relative to the configuration file.
    """
    from treeproof.cli.run_output import check_out
    from treeproof.query.arithmetic import in_words

    if out is not None:
        check_out(out)
    configuration = read_configuration(Path(config_path))
    results = answer_configuration(configuration, absent=absent, jobs=jobs)
    if out is not None:
        results.save(out)
    print_note(f"arithmetic: {in_words(results.header)}.")
    eps = configuration.eps_init
    click.echo(f"clique method average bound:{results.average_lower_bound:.6g}")
    click.echo(f"verified error at epsilon {eps:.6g} = {results.verified_error(eps):.6g}")


def read_configuration(path: Path) -> Configuration:
    """Read and check a configuration file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"The configuration '{path}' must be readable. Got: {error.strerror or error}."
        ) from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"The configuration '{path}' must be JSON. Got: {error}.") from error
    if not isinstance(content, dict):
        raise InvalidInput(f"The configuration '{path}' must be a JSON object.")
    keys = {key.name: key for key in fields(Configuration)}
    for name in set(content) - set(keys):
        print_note(f"the key {printable(name)!r} of the configuration is not known, and ignored.")
    values: dict[str, Any] = {}
    for name, key in keys.items():
        if name in content:
            kind = key.type if key.type in (str, float) else int
            values[name] = _value(path, name, kind, content[name])
        elif key.default is MISSING:
            raise InvalidInput(f"The configuration '{path}' must have the key '{name}'. Got none.")
    for name in ("inputs", "model"):
        values[name] = str(path.parent / values[name])
    if values["start_idx"] < 0 or values["num_attack"] < 1:
        raise InvalidInput(
            "'start_idx' must be at least 0 and 'num_attack' at least 1."
            f" Got {values['start_idx']} and {values['num_attack']}."
        )
    return Configuration(**values)


def _value(path: Path, name: str, kind: Any, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is str and isinstance(value, str):
        return value
    if kind is float and is_number:
        return float(value)
    if kind is int and ((is_number and float(value).is_integer()) or isinstance(value, bool)):
        return int(value)
    words = {str: "a text", float: "a number", int: "a whole number"}
    raise InvalidInput(f"'{name}' in '{path}' must be {words[kind]}. Got {value!r}.")


def answer_configuration(configuration: Configuration, *, absent: Absent, jobs: int) -> "Results":
    """Load model and rows, and bound the radius of every row as treeVerification does."""
    import numpy as np

    import treeproof
    from treeproof.cli.run_output import progress_bar

    model, rows, labels = _read(configuration, absent)
    engine = treeproof.multilevel(
        T=configuration.max_clique,
        L=configuration.max_level,
        bound="path" if configuration.dp else "sum",
    )
    search = treeproof.PaperProtocol(
        first_eps=configuration.eps_init, steps=configuration.max_search
    )
    frozen: list[int] = []
    if configuration.one_attr is not None:
        moving = configuration.one_attr + configuration.feature_start
        if not 0 <= moving < model.n_features:
            raise InvalidInput(
                f"'one_attr' must be a feature of the model. Got {configuration.one_attr}."
            )
        frozen = [feature for feature in range(model.n_features) if feature != moving]
    ball = treeproof.LInf(frozen=frozen)
    parts = []
    with progress_bar(len(rows)) as advance:
        for first in range(0, len(rows), 16):
            part = slice(first, first + 16)
            parts.append(
                # As the program: thresholds are real numbers, and rows those of the model.
                treeproof.radius(
                    model,
                    rows[part],
                    labels[part],
                    ball,
                    engine=engine,
                    search=search,
                    arithmetic="real",
                    n_jobs=jobs,
                )
            )
            advance(min(part.stop, len(rows)))
    results = treeproof.Results.join(parts)
    results.row = np.arange(len(rows), dtype=np.int64) + configuration.start_idx
    return results


def _read(configuration: Configuration, absent: Absent) -> tuple["Model", Any, Any]:
    """Model, rows and labels; column k of the rows is the model's feature k."""
    import numpy as np

    import treeproof
    from treeproof.data.readers import LibsvmFile, ReadOptions

    n_classes = max(configuration.num_classes, 2)
    first = configuration.start_idx
    options = ReadOptions(
        rows=slice(first, first + configuration.num_attack),
        first_index=0,
        absent=absent,
    )
    chunks = list(LibsvmFile(Path(configuration.inputs), options).chunks())
    if not chunks:
        raise InvalidInput(f"'{configuration.inputs}' must have a row {first}. Got fewer rows.")
    rows = np.concatenate([chunk.values for chunk in chunks])
    # The program has no base score: margins start at zero.
    model = treeproof.load(configuration.model, base_score=0.0, n_classes=n_classes)
    width = max(model.n_features, rows.shape[1])
    if width > model.n_features:
        model = treeproof.load(
            configuration.model, base_score=0.0, n_classes=n_classes, n_features=width
        )
    filling = 0.0 if absent == "zero" else np.nan
    padding = np.full((len(rows), width - rows.shape[1]), filling)
    words = [word for chunk in chunks for word in chunk.labels]
    return model, np.hstack([rows, padding]), _labels(words, n_classes, configuration.inputs)


def _labels(words: list[str], n_classes: int, path: str) -> Any:
    """Class of each row: above one half is class 1 of two, otherwise the number itself."""
    import numpy as np

    try:
        numbers = np.array([float(word) for word in words])
    except ValueError as error:
        raise InvalidInput(f"Labels in '{path}' must be numbers: {error}.") from error
    if not np.isfinite(numbers).all():
        raise InvalidInput(f"Labels in '{path}' must be finite numbers. Got NaN or infinity.")
    if n_classes == 2:
        return (numbers > 0.5).astype(np.int64)
    labels = numbers.astype(np.int64)
    if np.any(labels != numbers) or np.any((labels < 0) | (labels >= n_classes)):
        wrong = numbers[(labels != numbers) | (labels < 0) | (labels >= n_classes)][0]
        raise InvalidInput(
            f"Labels in '{path}' must be whole numbers from 0 to {n_classes - 1}. Got {wrong:g}."
        )
    return labels
