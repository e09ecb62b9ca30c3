"""`treeproof train`: a robust model from a data file, saved as an XGBoost model."""

import contextlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_note, printable
from treeproof.cli.options import (
    ABOVE_ZERO,
    DISTANCE,
    FILE,
    POSITIVE,
    SEED,
    Command,
    FiniteNumber,
    data_argument,
    jobs_option,
    label_option,
    libsvm_options,
    rows_option,
    section,
)
from treeproof.cli.run_output import check_out, progress_bar
from treeproof.errors import InvalidInput, require_backend
from treeproof.files import atomic_replace

if TYPE_CHECKING:
    from treeproof.data.readers import DataFile
    from treeproof.model.ensemble import Ensemble

_SUFFIXES = (".json", ".ubj", ".treeproof")


_attacker = section("Attacker")
_trees = section("Trees")
_SHARE = FiniteNumber(0.0, 1.0, min_open=True)


@click.command(
    cls=Command,
    example="treeproof train rows.csv --label target --eps 0.1 --out model.json",
)
@data_argument
@click.option(
    "--out",
    required=True,
    metavar="MODEL",
    type=FILE,
    help="Where to save it: .json or .ubj for XGBoost, .treeproof to keep labels that are texts.",
)
@click.option("--test", "test_path", metavar="DATA", type=FILE, help="Rows to try it on.")
@click.option("--seed", type=SEED, default=0, help="Seed of everything random.")
@jobs_option
@label_option
@rows_option
@libsvm_options
@_attacker(
    "--eps",
    type=DISTANCE,
    default=0.0,
    help="How far an attacker may move every feature; 0 trains an ordinary model.",
)
@_attacker(
    "--eps-scale",
    type=click.Choice(["one", "std", "range"]),
    default="one",
    help="Unit of --eps: 1, or each feature's spread in DATA.",
)
@_attacker("--frozen", multiple=True, metavar="NAME", help="A feature that no attacker can change.")
@_trees("--trees", type=POSITIVE, default=100, help="Rounds of boosting.")
@_trees("--depth", type=POSITIVE, default=6, help="Splits above a leaf, at most.")
@_trees(
    "--learning-rate",
    type=ABOVE_ZERO,
    default=0.3,
    help="Share of each round's step that is taken.",
)
@_trees("--reg-lambda", type=DISTANCE, default=1.0, help="Shrinks the values of leaves.")
@_trees("--gamma", type=DISTANCE, default=0.0, help="Gain that a split must have.")
@_trees("--min-child-weight", type=DISTANCE, default=1.0, help="Weight that a leaf must have.")
@_trees("--subsample", type=_SHARE, default=1.0, help="Share of rows that each round sees.")
@_trees("--colsample", type=_SHARE, default=1.0, help="Share of features that each tree sees.")
@_trees(
    "--method",
    type=click.Choice(["hist", "exact"]),
    default="hist",
    help="Thresholds from bins, or all of them.",
)
@_trees(
    "--monotone",
    multiple=True,
    metavar="NAME=SIGN",
    help="A feature with which margins may only rise (1) or fall (-1).",
)
@_trees(
    "--early-stopping",
    type=POSITIVE,
    metavar="ROUNDS",
    help="Stop when a tenth of the rows, held out, has not improved for so long.",
)
def command(
    data_path: str,
    label: str | None,
    out: str,
    rows: str | None,
    test_path: str | None,
    **options: Any,
) -> None:
    """Train gradient-boosted trees on DATA, against an attacker who moves every feature.

    The model is an ordinary one for XGBoost, with the same margins bit for bit; radius, verify and
    report take it as any other.
    """
    require_backend("sklearn", "sklearn")
    _check_out(out)
    data = _read(data_path, label, rows, options)
    tested = None if test_path is None else _read(test_path, label, None, options)
    if tested is not None:
        _check_test(tested, data, test_path, data_path)
    estimator = _estimator(data, options)
    with progress_bar(options["trees"]) as advance:
        estimator.set_params(progress=lambda done, planned, scores: advance(done))
        try:
            estimator.fit(data.frame(), data.labels)
        except ValueError as error:  # scikit-learn's own refusals are sentences, too
            raise InvalidInput(str(error).split("\n", 1)[0]) from error
    estimator.set_params(progress=None)
    lines = [
        f"{estimator.n_estimators_} rounds on {len(data.labels)} rows, {data.values.shape[1]}"
        f" features and {len(estimator.classes_)} classes, against eps {options['eps']:g}",
        f"accuracy on these rows: {estimator.score(data.frame(), data.labels):.6g}",
    ]
    if tested is not None:
        accuracy = estimator.score(tested.frame(), tested.labels)
        lines.append(f"accuracy on {len(tested.labels)} rows of {test_path}: {accuracy:.6g}")
    _save(estimator, out)
    for line in (*lines, f"saved as {out}"):
        click.echo(printable(line))
    _say_classes(estimator.classes_.tolist(), out)


@dataclass(frozen=True, slots=True)
class _Data:
    """Rows in memory: values (float64), labels (whole numbers or texts), and column names."""

    values: Any
    labels: Any
    names: tuple[str, ...]

    def frame(self) -> Any:
        """A data frame, which is how scikit-learn learns names; an array without names."""
        if self.names:
            for library in ("pandas", "polars"):
                with contextlib.suppress(ImportError):
                    frame = import_module(library).DataFrame
                    return frame({name: self.values[:, i] for i, name in enumerate(self.names)})
        return self.values


def _check_out(out: str) -> None:
    target = Path(out)
    if target.suffix not in _SUFFIXES:
        raise InvalidInput(
            f"The model file must end in {', '.join(_SUFFIXES)}. Got '{target.name}'."
        )
    check_out(out, "The model file")


def _read(path: str, label: str | None, rows: str | None, options: dict[str, Any]) -> _Data:
    """Read all rows; training needs them together."""
    import numpy as np

    from treeproof.data.readers import ReadOptions, open_data, parse_rows

    wanted = slice(0, None) if rows is None else parse_rows(rows)
    reading = ReadOptions(
        label=label, rows=wanted, first_index=options["first_index"], absent=options["absent"]
    )
    file = open_data(path, reading)
    if not file.has_labels:
        raise InvalidInput(
            f"Training needs labels. Say with --label which column of '{path}' has them."
        )
    values: list[Any] = []
    labels: list[Any] = []
    shape = None
    for chunk in file.chunks():
        shape = shape or _shape_of(file, chunk)
        values.append(chunk.matrix(shape))
        labels += list(chunk.labels)
    if not values:
        raise InvalidInput(f"There must be at least one row to train on. Got none in '{path}'.")
    return _Data(np.concatenate(values), _label_array(labels), file.columns)


def _check_test(tested: _Data, data: _Data, test_path: str | None, data_path: str) -> None:
    """Refuse, before training, rows that the model could not be tried on."""
    if tested.names != data.names or tested.values.shape[1] != data.values.shape[1]:
        told = [
            ", ".join(part.names) or f"{part.values.shape[1]} columns without names"
            for part in (data, tested)
        ]
        raise InvalidInput(
            f"The rows of '{test_path}' must have the columns of '{data_path}': {told[0]}."
            f" Got {told[1]}."
        )
    if tested.labels.dtype.kind != data.labels.dtype.kind:
        raise InvalidInput(
            f"The labels in '{test_path}' must be numbers or texts as those in '{data_path}' are."
            f" Got {tested.labels[0]!r} against {data.labels[0]!r}."
        )


def _shape_of(file: "DataFile", chunk: Any) -> "Ensemble":
    """A model with the columns of a file and one leaf: cells are read as any model reads them."""
    import numpy as np

    from treeproof.model.builder import TreeBuilder
    from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance

    builder = TreeBuilder()
    nothing = np.array([-1])
    builder.add_tree(
        feature=nothing,
        threshold=np.zeros(1),
        left=nothing,
        right=nothing,
        flags=np.zeros(1, dtype=np.uint8),
        value=np.zeros(1),
        output=0,
    )
    n_features = len(file.columns) or chunk.values.shape[1]
    return Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=1,
        input_precision="float32",
        aggregation=Aggregation(precision="float32", start=(0.0,)),
        decision=Decision(kind="score"),
        feature_names=file.columns,
        infinite_allowed=False,
        provenance=Provenance(library="treeproof"),
    )


def _label_array(labels: list[Any]) -> Any:
    """Labels as whole numbers where all of them are numbers, as texts otherwise."""
    import numpy as np

    try:
        numbers = np.array([float(label) for label in labels])
    except (TypeError, ValueError):
        return np.array([str(label) for label in labels])
    broken = numbers != np.rint(numbers)
    if broken.any():
        raise InvalidInput(
            f"Labels must be classes, whole numbers or texts. Got {numbers[broken][0]}."
        )
    return numbers.astype(np.int64)


def _estimator(data: _Data, options: dict[str, Any]) -> Any:
    from treeproof.query.names import feature_number
    from treeproof.query.threats import known_feature
    from treeproof.training import RobustGBDTClassifier

    def number(name: str) -> int:
        return feature_number(known_feature(name, data.names), data.values.shape[1], data.names)

    monotone = {}
    for pair in options["monotone"]:
        name, _, sign = pair.rpartition("=")
        if sign not in ("1", "-1", "+1"):
            raise InvalidInput(f"--monotone must have the form NAME=1 or NAME=-1. Got {pair!r}.")
        monotone[number(name)] = int(sign)
    return RobustGBDTClassifier(
        eps=options["eps"],
        n_estimators=options["trees"],
        max_depth=options["depth"],
        learning_rate=options["learning_rate"],
        reg_lambda=options["reg_lambda"],
        gamma=options["gamma"],
        min_child_weight=options["min_child_weight"],
        subsample=options["subsample"],
        colsample_bytree=options["colsample"],
        tree_method=options["method"],
        feature_scale=None if options["eps_scale"] == "one" else options["eps_scale"],
        frozen_features=[number(name) for name in options["frozen"]] or None,
        monotone_constraints=monotone or None,
        early_stopping_rounds=options["early_stopping"],
        random_state=options["seed"],
        n_jobs=options["jobs"] or -1,
    )


def _save(estimator: Any, out: str) -> None:
    from treeproof.model.file_format import save_ensemble
    from treeproof.results.run_file import unwritable

    try:
        with atomic_replace(Path(out)) as temporary:
            if temporary.suffix == ".treeproof":
                save_ensemble(estimator.to_ensemble(), temporary)
            else:
                estimator.save_xgboost(temporary)
    except OSError as error:
        raise unwritable(out, error, "The model file") from error


def _say_classes(classes: list[Any], out: str) -> None:
    if out.endswith(".treeproof") or classes == list(range(len(classes))):
        return
    said = ", ".join(f"{number} is {label!r}" for number, label in enumerate(classes[:10]))
    print_note(
        f"XGBoost files know classes by number: {said}. A file that ends in .treeproof keeps them."
    )
