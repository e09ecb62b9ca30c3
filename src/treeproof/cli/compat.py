"""`treeproof compat`: answers a configuration file of treeVerification, the paper's own program."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import msgspec

from treeproof.cli.console import print_note
from treeproof.cli.options import FILE, POSITIVE, Command, absent_option
from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    from treeproof.prediction import Model
    from treeproof.results.results import Results

Absent = Literal["zero", "missing"]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a configuration file, under their own names; those without a default are needed.

    Paths are relative to the file.
    """

    inputs: str
    model: str
    start_idx: Annotated[int, msgspec.Meta(ge=0)]
    num_attack: Annotated[int, msgspec.Meta(ge=1)]
    eps_init: float
    max_clique: int
    max_search: int
    max_level: int
    num_classes: int
    dp: int | bool = 0
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
    """Read and check a configuration file; its paths become complete."""
    try:
        content = msgspec.json.decode(path.read_bytes())
        configuration = msgspec.convert(content, Configuration, strict=False)
    except OSError as error:
        raise InvalidInput(
            f"The configuration '{path}' must be readable. Got: {error.strerror or error}."
        ) from error
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"The configuration '{path}' must have the keys of treeVerification. Got: {error}."
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"The configuration '{path}' must be JSON. Got: {error}.") from error
    for name in set(content) - set(Configuration.__struct_fields__):
        print_note(f"the key {printable(name)!r} of the configuration is not known, and ignored.")
    complete = {name: str(path.parent / content[name]) for name in ("inputs", "model")}
    return msgspec.structs.replace(configuration, **complete)


def answer_configuration(configuration: Configuration, *, absent: Absent, jobs: int) -> "Results":
    """Load model and rows, and bound the radius of every row as treeVerification does."""
    import numpy as np

    import treeproof
    from treeproof.cli.run_output import progress_bar

    model, rows, labels = _read(configuration, absent)
    bound: Literal["path", "sum"] = "path" if configuration.dp else "sum"
    engine = treeproof.multilevel(configuration.max_clique, configuration.max_level, bound=bound)
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
    # As the program: thresholds are real numbers, and rows those of the model.
    ask = partial(treeproof.radius, engine=engine, search=search, arithmetic="real", n_jobs=jobs)
    parts = []
    with progress_bar(len(rows)) as advance:
        for first in range(0, len(rows), 16):
            part = slice(first, first + 16)
            parts.append(ask(model, rows[part], labels[part], ball))
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
    asked = slice(first, first + configuration.num_attack)
    options = ReadOptions(rows=asked, first_index=0, absent=absent)
    chunks = list(LibsvmFile(Path(configuration.inputs), options).chunks())
    if not chunks:
        raise InvalidInput(f"'{configuration.inputs}' must have a row {first}. Got fewer rows.")
    rows = np.concatenate([chunk.values for chunk in chunks])
    # The program has no base score: margins start at zero.
    load = partial(treeproof.load, configuration.model, base_score=0.0, n_classes=n_classes)
    model = load()
    width = max(model.n_features, rows.shape[1])
    if width > model.n_features:
        model = load(n_features=width)
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
    wrong = numbers[~np.isin(numbers, np.arange(n_classes))]
    if len(wrong):
        raise InvalidInput(
            f"Labels in '{path}' must be whole numbers from 0 to {n_classes - 1}. Got {wrong[0]:g}."
        )
    return numbers.astype(np.int64)
