"""Random ensembles that use every feature of the canonical form, and rows that stress them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)

CLASS_LABELS: tuple[tuple[Any, ...], ...] = (
    (0, 1, 2),
    ("ham", "spam", "größer [x]"),
    (False, True, 2),
    (-1.5, 0.0, 1e300),
    (-(2**63), 2**53 + 1, 2**63 - 1),
)
_CATEGORY_VALUES: tuple[Any, ...] = ("red", 1, 2.5, True, None, float("nan"), float("inf"), "")


def random_ensemble(rng: np.random.Generator) -> Ensemble:
    n_features = int(rng.integers(1, 7))
    n_outputs = int(rng.choice([1, 1, 3]))
    vector = bool(n_outputs > 1 and rng.random() < 0.5)
    input_precision = str(rng.choice(["float32", "float64"]))
    categorical = rng.random(n_features) < 0.3
    builder = TreeBuilder(leaf_width=n_outputs if vector else 1)
    for tree in range(int(rng.integers(1, 9))):
        output = -1 if vector else tree % n_outputs
        _add_tree(rng, builder, n_features, categorical, input_precision, output)
    aggregation = _aggregation(rng, n_outputs)
    return Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=n_outputs,
        input_precision=input_precision,  # type: ignore[arg-type]
        aggregation=aggregation,
        categories={
            int(feature): tuple(_CATEGORY_VALUES[: rng.integers(1, len(_CATEGORY_VALUES) + 1)])
            for feature in np.flatnonzero(categorical & (rng.random(n_features) < 0.5))
        },
        feature_names=tuple(f"feature {i} [b]" for i in range(n_features))
        if rng.random() < 0.5
        else (),
        missing_allowed=bool(rng.random() < 0.9),
        infinite_allowed=bool(rng.random() < 0.9),
        provenance=Provenance(
            library="random",
            library_version="1.0",
            source="tests",
            file_sha256="ab" * 32,
            objective="any",
            notes=("first note", "zweite Notiz"),
            self_test="not run",
        ),
        **_decision(rng, n_outputs, aggregation.precision),
    )


def random_rows(
    rng: np.random.Generator, ensemble: Ensemble, n_rows: int = 64
) -> NDArray[np.float64]:
    """Rows on thresholds, one float beside them, and values that libraries treat specially."""
    special = [0.0, -0.0, 1e-36, -1e-36, 5e-324, 1e-40, 0.5, 1.0, 2.0, 7.9, 31.0, 32.0, 1e9, -0.5]
    if ensemble.missing_allowed:
        special.append(np.nan)
    if ensemble.infinite_allowed:
        special += [np.inf, -np.inf, 1e300, -1e300]
    thresholds = ensemble.trees.threshold[np.isfinite(ensemble.trees.threshold)]
    real = np.float32 if ensemble.input_precision == "float32" else np.float64
    below = np.nextafter(thresholds.astype(real), real(-np.inf)).astype(np.float64)
    pool = np.concatenate([special, thresholds, below, rng.normal(size=8)])
    return rng.choice(pool, size=(n_rows, ensemble.n_features))


def _add_tree(
    rng: np.random.Generator,
    builder: TreeBuilder,
    n_features: int,
    categorical: NDArray[np.bool_],
    precision: str,
    output: int,
) -> None:
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "flags", "value", "set")
    }
    depth_limit = int(rng.integers(0, 6))

    def grow(depth: int) -> int:
        node = len(nodes["feature"])
        for column in nodes.values():
            column.append(0)
        nodes["value"][node] = rng.normal(size=builder.leaf_width).astype(np.float32)
        nodes["left"][node] = nodes["right"][node] = nodes["set"][node] = -1
        if depth == depth_limit or rng.random() < 0.15:
            return node
        feature = int(rng.integers(n_features))
        nodes["feature"][node] = feature
        threshold = float(rng.choice([0.0, 0.5, 1e-36, -np.inf, *rng.normal(size=3).round(1)]))
        nodes["threshold"][node] = float(np.float32(threshold)) if "32" in precision else threshold
        nodes["flags"][node] = int(rng.random() < 0.5) * MISSING_LEFT
        if categorical[feature]:
            nodes["flags"][node] |= CATEGORICAL
            nodes["flags"][node] |= int(rng.choice([0, WHOLE_CATEGORY, NONNEGATIVE_CATEGORY]))
            members = np.flatnonzero(rng.random(int(rng.choice([0, 1, 8, 40]))) < 0.5)
            nodes["set"][node] = builder.add_category_set(members.tolist())
        elif rng.random() < 0.3 and "64" in precision:
            nodes["flags"][node] |= ZERO_IS_MISSING
        nodes["left"][node] = grow(depth + 1)
        nodes["right"][node] = grow(depth + 1)
        return node

    grow(0)
    builder.add_tree(
        feature=nodes["feature"],
        threshold=nodes["threshold"],
        left=nodes["left"],
        right=nodes["right"],
        flags=nodes["flags"],
        value=np.array(nodes["value"]),
        output=output,
        category_set=nodes["set"],
    )


def _aggregation(rng: np.random.Generator, n_outputs: int) -> Aggregation:
    finish = str(rng.choice(["none", "divide", "affine", "isolation"]))
    if finish == "isolation" and n_outputs > 1:
        finish = "none"
    isolation = finish == "isolation"
    return Aggregation(
        precision="float64" if isolation else str(rng.choice(["float32", "float64"])),  # type: ignore[arg-type]
        start=tuple(float(np.float32(value)) for value in rng.normal(size=n_outputs)),
        finish=finish,  # type: ignore[arg-type]
        divisor=3.0,
        scale=0.1,
        bias={"affine": (0.3,) * n_outputs, "isolation": (-0.5,)}.get(finish, ()),
    )


def _decision(rng: np.random.Generator, n_outputs: int, precision: str) -> dict[str, Any]:
    if rng.random() < 0.2:
        return {"decision": Decision(kind="score")}
    labels = CLASS_LABELS[int(rng.integers(len(CLASS_LABELS)))]
    if n_outputs == 1:
        cut = float(rng.choice([0.0, np.finfo(precision).smallest_subnormal, -0.25]))
        return {"decision": Decision(kind="threshold", cut=cut), "classes": labels[:2]}
    link: Any = str(
        rng.choice(["identity", "softmax_float32", "softmax_float64", "sigmoid_float64"])
    )
    divisor, scale = (1.0, 1.0) if link == "identity" else (float(rng.choice([1.0, 3.0])), 2.0)
    decision = Decision(kind="argmax", link=link, link_divisor=divisor, link_scale=scale)
    return {"decision": decision, "classes": labels}
