"""Pipelines of scikit-learn and imbalanced-learn, and dispatch to what stands around models."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import Loaded, Loader, LoadOptions, Reference, class_numbers
from treeproof.loaders.pipelines.flow import Column, Flow
from treeproof.loaders.pipelines.fold import fold
from treeproof.loaders.pipelines.rows import RawRows, quietly
from treeproof.loaders.pipelines.steps import MOST_COLUMNS, Place, dense, follow
from treeproof.loaders.pipelines.wrappers import WRAPPERS
from treeproof.loaders.registry import load_object
from treeproof.loaders.sklearn.shared import class_names
from treeproof.model.ensemble import Ensemble, FloatArray


class PipelineLoader(Loader):
    """Pipelines, and estimators around others; the model inside is loaded by its own loader."""

    def accepts_object(self, source: Any) -> bool:
        """Whether an object is a pipeline, or a known wrapper."""
        names = class_names(source)
        return "Pipeline" in names or any(name in WRAPPERS for name in names)

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a fitted pipeline or wrapper, with the model inside."""
        names = class_names(source)
        if "Pipeline" in names:
            return _load_pipeline(source, options)
        return next(WRAPPERS[name] for name in names if name in WRAPPERS)(source, options)


def _load_pipeline(pipeline: Any, options: LoadOptions) -> Loaded:
    model = pipeline.steps[-1][1]
    if isinstance(model, str) or model is None or not hasattr(model, "predict"):
        raise UnsupportedModel(
            f"The last step of a pipeline must be a model. Got {model!r}."[:200]
            + " Load the pipeline that ends with one."
        )
    loaded = load_object(model, options)
    before = _transformers(pipeline)
    flow = Flow(_column_count(pipeline, loaded.ensemble))
    columns = flow.raw
    for name, step in before:
        columns = follow(Place(flow, (name,)), step, columns)
    names = _column_names(pipeline)
    _settle(flow, columns, names, loaded.ensemble)
    everything = [(-np.inf, np.inf)] * len(flow.raw)
    listed = {raw: known for raw, known in flow.categories.items() if known}
    raw_rows = RawRows(names, listed, flow.objects, everything)
    zero_is_missing = loaded.ensemble.provenance.library == "xgboost" and _is_sparse(
        before, raw_rows(_base_row(flow))
    )
    folded = fold(
        loaded.ensemble,
        flow,
        columns,
        zero_is_missing=zero_is_missing,
        ranges=loaded.reference.ranges,
    )
    raw_rows = replace(raw_rows, accepted=folded.accepted)
    inside = loaded.ensemble
    known = inside.provenance
    ensemble = replace(
        inside,
        trees=folded.trees,
        n_features=len(flow.raw),
        input_precision="float64",
        feature_names=names,
        categories=flow.categories,
        categorical=tuple(sorted(flow.codes)),
        required=flow.required,
        missing_allowed=len(flow.required) < len(flow.raw),
        infinite_allowed=inside.infinite_allowed and not flow.steps,
        provenance=replace(
            known,
            library="scikit-learn pipeline",
            library_version=str(sys.modules["sklearn"].__version__),
            source=f"{type(pipeline).__name__} object",
            notes=(*known.notes, _inside_note(before, known.library, known.library_version)),
        ),
    )
    reference = _reference(pipeline, before, loaded, raw_rows, options, zero_is_missing)
    return replace(loaded, ensemble=ensemble, reference=reference)


def _transformers(pipeline: Any) -> list[tuple[str, Any]]:
    """Steps before the model that change rows."""
    return [
        (str(name), step)
        for name, step in pipeline.steps[:-1]
        if step is not None
        and not (isinstance(step, str) and step == "passthrough")
        and not hasattr(step, "fit_resample")
    ]


def _first(pipeline: Any, attribute: str) -> Any:
    found = (getattr(step, attribute, None) for _, step in pipeline.steps)
    return next((value for value in found if value is not None), None)


def _column_count(pipeline: Any, ensemble: Ensemble) -> int:
    count = _first(pipeline, "n_features_in_")
    count = ensemble.n_features if count is None else int(count)
    if not 1 <= count <= MOST_COLUMNS:
        raise UnsupportedModel(f"A pipeline must take 1 to {MOST_COLUMNS} columns. Got {count}.")
    return count


def _column_names(pipeline: Any) -> tuple[str, ...]:
    """Names of the raw columns, where the first step knows them."""
    names = getattr(pipeline.steps[0][1], "feature_names_in_", None)
    return () if names is None else tuple(str(name) for name in names)


def _settle(flow: Flow, columns: list[Column], names: tuple[str, ...], model: Ensemble) -> None:
    if len(columns) != model.n_features:
        raise BrokenModelFile(
            f"The steps of a pipeline must give the {model.n_features} columns that its model"
            f" takes. Got {len(columns)}."
        )
    for number, column in enumerate(columns):
        known = model.categories.get(number)
        if known is None or column.is_encoded:
            flow.use_as_numbers([column])
        elif model.provenance.library.startswith("scikit-learn"):
            flow.use_as_categories(column, known)
        else:
            raise UnsupportedModel(
                f"Categories of column {number} must be encoded before they reach the model of a"
                f" pipeline. Got a {model.provenance.library} model that encodes them itself. Use"
                " an OrdinalEncoder, or load the model by itself."
            )
    flow.settle(names)
    flow.accept(columns, model)


def _base_row(flow: Flow) -> FloatArray:
    """The row that every step accepts, with codes for categories."""
    listed = flow.categories
    return np.array([[0.0 if c.raw in listed else float(c.base) for c in flow.raw]])


def _is_sparse(steps: list[tuple[str, Any]], rows: Any) -> bool:
    return hasattr(_transformed(steps, rows), "toarray")


def _transformed(steps: Iterable[tuple[str, Any]], rows: Any) -> Any:
    with quietly():
        for _, step in steps:
            rows = step.transform(rows)
    return rows


def _codes(matrix: NDArray[Any], categories: dict[int, tuple[Any, ...]]) -> FloatArray:
    """Transformed rows as the model inside takes them in tests: numbers, and codes."""
    if matrix.dtype.kind not in "OUS":
        return matrix
    result = np.empty(matrix.shape)
    for column in range(matrix.shape[1]):
        cells = matrix[:, column].tolist()
        if column in categories:
            code = {value: float(number) for number, value in enumerate(categories[column])}
            cells = [code.get(cell, np.nan) for cell in cells]
        result[:, column] = cells
    return result


def _inside_note(steps: list[tuple[str, Any]], library: str, version: str) -> str:
    kinds = ", ".join(type(step).__name__ for _, step in steps) or "no step"
    return f"{kinds} folded into a model of {library} {version}."


def _reference(
    pipeline: Any,
    steps: list[tuple[str, Any]],
    loaded: Loaded,
    raw_rows: RawRows,
    options: LoadOptions,
    zero_is_missing: bool,
) -> Reference:
    """The pipeline's own answers: its steps, then margins of its model; labels of it all."""
    inside = loaded.reference
    labels_inside = inside.labels

    def seen(rows: FloatArray) -> FloatArray:
        """Rows as the model inside would be given them by itself."""
        given = _transformed(steps, raw_rows(rows))
        if not zero_is_missing:
            return _codes(dense(given), loaded.ensemble.categories)
        present = np.full(given.shape, np.nan)
        place = given.tocoo()
        present[place.row, place.col] = place.data
        return present

    def labels(rows: FloatArray) -> NDArray[np.int64]:
        in_order = getattr(pipeline.steps[-1][1], "n_jobs", None) in (None, 1)
        if labels_inside is not None and (options.decision_threshold is not None or not in_order):
            return labels_inside(seen(rows))
        with quietly():
            answer = np.asarray(pipeline.predict(raw_rows(rows))).reshape(len(rows))
        return class_numbers(loaded.ensemble.classes, answer)

    return Reference(
        margins=lambda rows: inside.margins(seen(rows)),
        labels=None if labels_inside is None else labels,
        rows=raw_rows,
        ranges=tuple(raw_rows.accepted),
    )
