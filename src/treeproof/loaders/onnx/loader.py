"""Loader for ONNX models: one tree operator with encoders, scalers and the like around it."""

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import (
    CannotAnswer,
    Loaded,
    Loader,
    LoadOptions,
    Reference,
    class_numbers,
    has_base_class,
    read_model_file,
)
from treeproof.loaders.onnx.columns import RawRows, Tensor, follow, raw_rows
from treeproof.loaders.onnx.format import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    ML,
    STRING,
    Graph,
    Node,
    read_graph,
)
from treeproof.loaders.onnx.scores import (
    Label,
    Score,
    Sums,
    chosen,
    follow_score,
    read_sums,
    with_threshold,
)
from treeproof.loaders.onnx.trees import canonical_trees, read_forest
from treeproof.loaders.rules import Precision
from treeproof.model.ensemble import Ensemble, FloatArray, Provenance
from treeproof.model.sums import accumulator_grid

_TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
_BATCH_ORDER = (
    "onnxruntime adds trees one after another with one thread and for batches of up to 50 rows, as"
    " here; with more threads and rows it adds parts of them first, which may change the last bits."
)


class OnnxLoader(Loader):
    """ONNX models, from files or in memory, read without the library onnx."""

    def accepts_object(self, source: Any) -> bool:
        """Whether an object is a model of the library onnx."""
        return has_base_class(source, "onnx", "ModelProto") or (
            type(source).__name__ == "ModelProto" and hasattr(source, "SerializeToString")
        )

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file is an ONNX model, by its name."""
        return path.suffix.lower() == ".onnx"

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a live model."""
        return load_bytes(source.SerializeToString(), options, source="onnx.ModelProto object")

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a file."""
        file = read_model_file(path)
        return load_bytes(file.content, options, source=str(path), sha256=file.sha256)


def load_bytes(content: bytes, options: LoadOptions, *, source: str, sha256: str = "") -> Loaded:
    """Translate the bytes of a model."""
    graph = read_graph(content)
    trees_node = _tree_node(graph)
    n_tested = int(max([0, *trees_node.integers("nodes_featureids").tolist()])) + 1
    raw = raw_rows(graph, options.n_features, n_tested)
    tensors = _before(graph, trees_node, raw)
    tensor = tensors.get(trees_node.inputs[0] if trees_node.inputs else "")
    if tensor is None or tensor.dtype not in (FLOAT, DOUBLE) or tensor.inner is not None:
        raise UnsupportedModel(
            f"The {trees_node.op} must read rows of floats or doubles that come from the inputs."
            " Cast them first."
        )
    precision: Precision = "float64" if tensor.dtype == DOUBLE else "float32"
    # Damaged numbers may be signalling NaN or overflow when cast; the validation names them.
    with np.errstate(invalid="ignore", over="ignore"):
        sums = read_sums(trees_node, read_forest(trees_node, precision))
        trees, names = canonical_trees(sums.forest, tensor.columns, raw.precision)
    label_name, label, words = _after(graph, trees_node, sums)
    decision, classes = sums.decision, sums.classes
    if label is not None:
        decision, classes = chosen(sums, label)
    if label is None or label.chosen_by is None:
        decision = with_threshold(sums, options)
    elif options.decision_threshold is not None:
        raise UnsupportedModel("A label that the graph chooses cannot have another threshold.")
    categories = _categories(raw, names)
    ensemble = Ensemble(
        trees=trees,
        n_features=raw.n_features,
        n_outputs=sums.forest.n_outputs,
        input_precision=raw.precision,
        aggregation=sums.aggregation,
        decision=decision,
        classes=classes,
        feature_names=raw.names,
        categories=categories,
        # onnxruntime's Binarizer stops at a missing value.
        missing_allowed=not any(node.op == "Binarizer" for node in graph.nodes),
        provenance=Provenance(
            library="ONNX",
            library_version=f"ai.onnx.ml {graph.opsets.get(ML, 1)}",
            source=source,
            file_sha256=sha256,
            objective=", ".join([trees_node.op, sums.transform, *words]),
            notes=_notes(graph, sums, words),
        ),
    )
    if accumulator_grid(ensemble) == 0.0:
        notes = (*ensemble.provenance.notes, _BATCH_ORDER)
        ensemble = ensemble.with_provenance(notes=notes)
    reference = _reference(ensemble, content, graph, raw, trees_node, sums, label_name)
    if options.decision_threshold is not None:
        reference = replace(reference, labels=None)
    return Loaded(ensemble, reference, _cautions(graph, raw, trees_node, sums))


def _tree_node(graph: Graph) -> Node:
    found = [node for node in graph.nodes if node.domain == ML and node.op in _TREES]
    if len(found) != 1:
        apart = ", whose sums would be rounded apart from each other" if found else ""
        raise UnsupportedModel(
            f"An ONNX model must have one tree operator ({', '.join(_TREES)})."
            f" Got {len(found) or 'none'}{apart}."
        )
    return found[0]


def _before(graph: Graph, trees_node: Node, raw: RawRows) -> dict[str, Tensor]:
    """The tensors that the trees need, in the order of the file, which is one of computation."""
    needed = set(trees_node.inputs)
    for node in reversed(graph.nodes):
        if needed & set(node.outputs) and node is not trees_node:
            needed |= set(node.inputs)
    tensors = raw.tensors()
    for node in graph.nodes:
        if node is trees_node:
            break
        if needed & set(node.outputs):
            for name in node.outputs:
                if name in tensors or name in graph.constants:
                    raise BrokenModelFile(f"The tensor '{name}' is written twice.")
            tensors[node.outputs[0]] = follow(node, tensors, graph.constants)
    return tensors


def _after(
    graph: Graph, trees_node: Node, sums: Sums
) -> tuple[str | None, Label | None, tuple[str, ...]]:
    """Name and meaning of the labels that the graph gives, and what else it does to scores."""
    values: dict[str, Score | Label] = {}
    outputs = [*trees_node.outputs, "", ""]
    is_classifier = trees_node.op == "TreeEnsembleClassifier"
    all_columns = None if sums.shown_columns.start else sums.shown
    score = Score(all_columns, sums.is_plain)
    values[outputs[1] if is_classifier else outputs[0]] = score
    if is_classifier:
        values[outputs[0]] = Label(sums.classes)
    values.pop("", None)
    for node in graph.nodes:
        if node is not trees_node and any(name in values for name in node.inputs):
            found = follow_score(node, values, graph.constants)
            for name in node.outputs:
                if name in values or name in graph.constants:
                    raise BrokenModelFile(f"The tensor '{name}' is written twice.")
                values[name] = found
    labels = [(n, v) for n in graph.outputs if isinstance(v := values.get(n), Label)]
    scores = [v for n in graph.outputs if isinstance(v := values.get(n), Score)]
    # Of a model without labels the scores are the answer, so every step counts.
    followed = [score.words if labels else score.steps for score in scores]
    words = tuple(dict.fromkeys(word for steps in followed for word in steps))
    if len(labels) > 1:
        raise UnsupportedModel("An ONNX model must give one label. Got several outputs of labels.")
    if not labels:
        return None, None, words
    return labels[0][0], labels[0][1], words


def _categories(raw: RawRows, names: dict[int, tuple[str, ...]]) -> dict[int, tuple[Any, ...]]:
    """Names of the categories of every raw column of strings."""
    kinds = [f.dtype for f, width in zip(raw.inputs, raw.widths, strict=True) for _ in range(width)]
    return {k: names.get(k, ()) for k, kind in enumerate(kinds) if kind == STRING}


def _notes(graph: Graph, sums: Sums, words: tuple[str, ...]) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if graph.producer:
        notes += (f"Exported by {graph.producer}.",)
    if words:
        notes += (f"The scores are the sums of the trees, before {', '.join(words)}.",)
    return notes


def _cautions(graph: Graph, raw: RawRows, trees_node: Node, sums: Sums) -> tuple[str, ...]:
    cautions: tuple[str, ...] = ()
    whole = [found.name for found in raw.inputs if found.dtype in (INT32, INT64)]
    if whole:
        cautions += (
            f"The inputs {', '.join(whole[:5])} of the ONNX model hold whole numbers, but treeproof"
            " looks at all numbers between them, too.",
        )
    labels = trees_node.integers("classlabels_int64s").tolist()
    if len(labels) == 2 and sums.classes == (0, 1) and labels != [0, 1]:
        cautions += (
            f"The ONNX model names its classes {labels}, but onnxruntime gives the labels 0 and 1,"
            " because there are weights for both classes.",
        )
    if raw.inputs[0].n_columns is None:
        cautions += (
            f"The ONNX model does not say how many columns it reads; taken are {raw.n_features}."
            " Say 'n_features' if there are more.",
        )
    return cautions


def _reference(
    ensemble: Ensemble,
    content: bytes,
    graph: Graph,
    raw: RawRows,
    trees_node: Node,
    sums: Sums,
    label_name: str | None,
) -> Reference:
    """Answers of onnxruntime with one thread, of the very bytes that were read.

    The scores of the tree operator are asked for by name, before anything is done to them.
    """
    is_classifier = trees_node.op == "TreeEnsembleClassifier"
    score_name = trees_node.outputs[1 if is_classifier else 0]
    label_output = label_name or (trees_node.outputs[0] if is_classifier else None)
    added = [name for name in (score_name, label_output) if name and name not in graph.outputs]

    @cache
    def session() -> Any:
        try:
            import onnxruntime
        except ImportError as error:
            raise CannotAnswer("onnxruntime cannot be imported") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return onnxruntime.InferenceSession(
                    content + _more_outputs(added), options, ["CPUExecutionProvider"]
                )
        except Exception as error:
            raise CannotAnswer(f"onnxruntime refuses the model: {str(error)[:200]}") from error

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        feeds = raw.feeds(rows, ensemble.categories)
        found = np.asarray(session().run([score_name], feeds)[0]).reshape(len(rows), -1)
        return found[:, sums.shown_columns]

    def labels(rows: FloatArray) -> NDArray[np.int64]:
        found = session().run([label_output], raw.feeds(rows, ensemble.categories))[0]
        return class_numbers(ensemble.classes, np.asarray(found).ravel())

    return Reference(
        margins=margins,
        labels=labels if label_output is not None else None,
        shown=sums.shown,
        feedable=raw.feedable,
    )


def _more_outputs(names: list[str]) -> bytes:
    """What to append to a model so that its graph gives more tensors: messages are merged."""
    outputs = b""
    for name in names:
        value = _field(1, name.encode())
        outputs += _field(12, value)
    return _field(7, outputs) if names else b""


def _field(number: int, payload: bytes) -> bytes:
    """A field of bytes in the wire format of Protocol Buffers."""
    length, head = len(payload), bytearray([number << 3 | 2])
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(head) + bytes([length]) + payload
