"""`treeproof train`: a robust model from a data file, saved as an XGBoost model."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_note
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
from treeproof.errors import BackendMissing, InvalidInput, listed, printable, require_backend

if TYPE_CHECKING:
    from treeproof.data.readers import DataFile
    from treeproof.model.ensemble import Ensemble

_SUFFIXES = (".json", ".ubj", ".onnx", ".treeproof")
_SHARE = FiniteNumber(0.0, 1.0, min_open=True)

_attacker = section("Attacker")
_trees = section("Trees")


# Names of parameters are those of `RobustGBDTClassifier`.
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
    help="Where to save it: .json or .ubj for XGBoost, .onnx, .treeproof for any labels.",
)
@click.option("--test", "test_path", metavar="DATA", type=FILE, help="Rows to try it on.")
@click.option("--seed", "random_state", type=SEED, default=0, help="Seed of everything random.")
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
    "feature_scale",
    type=click.Choice(["one", "std", "range"]),
    default="one",
    help="Unit of --eps: 1, or each feature's spread in DATA.",
)
@_attacker("--frozen", multiple=True, metavar="NAME", help="A feature that no attacker can change.")
@_attacker(
    "--threat",
    "threat_path",
    metavar="FILE",
    type=FILE,
    help="A threat model as a TOML file, in place of the options above.",
)
@_attacker(
    "--training",
    "method",
    type=click.Choice(["exact", "chen2019"]),
    default="exact",
    help="Against exact worst cases, or by the splits of Chen et al. (2019).",
)
@_attacker(
    "--leaf-penalty",
    type=ABOVE_ZERO,
    default=10.0,
    help="Caution of leaves that are fitted to worst cases.",
)
@_attacker(
    "--search",
    is_flag=True,
    help="Choose depth, rounds and penalty by the exact robust error of held-out rows.",
)
@_trees("--trees", "n_estimators", type=POSITIVE, default=100, help="Rounds of boosting.")
@_trees("--depth", "max_depth", type=POSITIVE, default=6, help="Splits above a leaf, at most.")
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
@_trees(
    "--colsample",
    "colsample_bytree",
    type=_SHARE,
    default=1.0,
    help="Share of features that each tree sees.",
)
@_trees(
    "--method",
    "tree_method",
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
    "early_stopping_rounds",
    type=POSITIVE,
    metavar="ROUNDS",
    help="Stop when a tenth of the rows, held out, has not improved for so long.",
)
def command(
    data_path: str,
    out: str,
    test_path: str | None,
    rows: str | None,
    jobs: int | None,
    label: str | None,
    first_index: Any,
    absent: Any,
    search: bool,
    **parameters: Any,
) -> None:
    """Train gradient-boosted trees on DATA, against an attacker who moves every feature.

    The model is an ordinary one for XGBoost, with the same margins bit for bit; radius, verify and
    report take it as any other.
    """
    import treeproof

    require_backend("sklearn", "sklearn")
    if Path(out).suffix not in _SUFFIXES:
        raise InvalidInput(
            f"The model file must end in {', '.join(_SUFFIXES)}. Got '{Path(out).name}'."
        )
    check_out(out, "The model file")
    reading = {"label": label, "first_index": first_index, "absent": absent}
    data = _read(data_path, rows, reading)
    tested = None if test_path is None else _read(test_path, None, reading)
    if tested is not None:
        _check_test(tested, data, test_path, data_path)
    estimator = _fitted(_estimator(data, n_jobs=jobs or -1, **parameters), data, search=search)
    attacker = f"eps {estimator.eps:g}" if estimator.perturbation is None else "the threat model"
    lines = [
        f"{estimator.n_estimators_} rounds on {len(data.labels)} rows, {data.values.shape[1]}"
        f" features and {len(estimator.classes_)} classes, against {attacker}",
        *_accuracy(estimator, data, "these rows"),
    ]
    if tested is not None:
        lines += _accuracy(estimator, tested, f"{len(tested.labels)} rows of {test_path}")
    if out.endswith(".treeproof"):
        treeproof.Model(estimator.to_ensemble()).save(out)
    elif out.endswith(".onnx"):
        estimator.save_onnx(out)
    else:
        estimator.save_xgboost(out)
    for line in (*lines, f"saved as {out}"):
        click.echo(printable(line))
    _say_classes(estimator.classes_.tolist(), out)


def _fitted(estimator: Any, data: "_Data", *, search: bool) -> Any:
    """Train, or search for what to train, with a bar."""
    from treeproof.training import RobustSearchCV

    if search and estimator.eps == 0.0 and estimator.perturbation is None:
        raise InvalidInput("--search needs an attacker: give --eps or --threat.")
    with progress_bar(1 if search else estimator.n_estimators) as advance:
        try:
            if search:
                found = RobustSearchCV(estimator).fit(data.frame(), data.labels)
                advance(1)
                return found.best_estimator_
            estimator.set_params(progress=lambda done, planned, scores: advance(done))
            estimator.fit(data.frame(), data.labels)
        except ValueError as error:  # scikit-learn's own refusals are sentences, too
            raise InvalidInput(str(error).split("\n", 1)[0]) from error
    return estimator.set_params(progress=None)


def _accuracy(estimator: Any, data: "_Data", where: str) -> list[str]:
    """What is known of a model on some rows, beside what no model can do better."""
    from treeproof.query.conflicts import MOST_ROWS, find_conflicts

    lines = [f"accuracy on {where}: {estimator.score(data.frame(), data.labels):.6g}"]
    if not estimator.reach_.any():
        return lines
    boxes = estimator.boxes(data.frame())
    kind = "at most" if boxes.holds_more else "exact"
    error = estimator.robust_error(data.frame(), data.labels)
    lines.append(f"robust error on {where}, {kind}: {error:.6g}")
    if len(data.labels) <= MOST_ROWS and not boxes.holds_more:
        import numpy as np

        _, targets = np.unique(data.labels, return_inverse=True)
        least = find_conflicts(boxes, targets).least_error
        constant = 1.0 - np.bincount(targets).max() / len(targets)
        lines[-1] += f" (least possible {least:.6g}, constant answer {constant:.6g})"
    return lines


@dataclass(frozen=True, slots=True)
class _Data:
    """Rows in memory: values (float64), labels (whole numbers or texts), and column names."""

    values: Any
    labels: Any
    names: tuple[str, ...]

    def frame(self) -> Any:
        """A data frame, which is how scikit-learn learns names; an array without names."""
        from treeproof.results.columns import frame_of

        if self.names:
            with contextlib.suppress(BackendMissing):
                return frame_of(dict(zip(self.names, self.values.T, strict=True)))
        return self.values


def _read(path: str, rows: str | None, reading: dict[str, Any]) -> _Data:
    """Read all rows; training needs them together."""
    import numpy as np

    from treeproof.data.readers import ReadOptions, open_data, parse_rows

    wanted = slice(0, None) if rows is None else parse_rows(rows)
    file = open_data(path, ReadOptions(rows=wanted, **reading))
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
    """The columns of a file as a model: cells are read as any model reads them."""
    from treeproof.query.boxes import columns_only

    return columns_only(len(file.columns) or chunk.values.shape[1], file.columns)


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


def _estimator(
    data: _Data,
    *,
    feature_scale: str,
    frozen: list[str],
    monotone: list[str],
    threat_path: str | None,
    **parameters: Any,
) -> Any:
    from treeproof.query.boxes import columns_only
    from treeproof.query.names import feature_number
    from treeproof.query.threats import known_feature, load_threat
    from treeproof.training import RobustGBDTClassifier

    def number(name: str) -> int:
        return feature_number(known_feature(name, data.names), data.values.shape[1], data.names)

    directions = {}
    for pair in monotone:
        name, _, sign = pair.rpartition("=")
        if sign not in ("1", "-1", "+1"):
            raise InvalidInput(f"--monotone must have the form NAME=1 or NAME=-1. Got {pair!r}.")
        directions[number(name)] = int(sign)
    perturbation = None
    if threat_path is not None:
        if parameters["eps"] or frozen or feature_scale != "one":
            raise InvalidInput(
                "--threat says all about the attacker. Leave --eps, --eps-scale and --frozen out."
            )
        perturbation = load_threat(threat_path).perturbation(
            columns_only(data.values.shape[1], data.names), data.values
        )
    return RobustGBDTClassifier(
        perturbation=perturbation,
        feature_scale=None if feature_scale == "one" else feature_scale,
        frozen_features=[number(name) for name in frozen] or None,
        monotone_constraints=directions or None,
        **parameters,
    )


def _say_classes(classes: list[Any], out: str) -> None:
    is_kept = out.endswith(".onnx") and all(isinstance(name, str | int) for name in classes)
    if out.endswith(".treeproof") or is_kept or classes == list(range(len(classes))):
        return
    said = listed([f"{number} is {label!r}" for number, label in enumerate(classes)])
    print_note(
        f"The file knows classes by number: {said}. A file that ends in .treeproof keeps them."
    )
