"""From the inputs of an ONNX graph to the columns that its trees test.

Every column of a tensor before the trees is a function of one column of the raw row: of a number by
steps that never change the order of two numbers but together, or of a category by a table. Steps
compute as onnxruntime does, in the precision of their tensor, so that what they round is rounded.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.onnx.format import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    ML,
    NUMPY,
    STRING,
    Graph,
    Input,
    Node,
)
from treeproof.loaders.rules import Precision
from treeproof.model.ensemble import FloatArray

Step = Callable[[NDArray[Any]], NDArray[Any]]

_NUMBERS = (FLOAT, DOUBLE, INT32, INT64)

MAX_COLUMNS = 1 << 20
"""Columns of one tensor; a hostile file may repeat them without end."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a column holds for each category of a raw column, and for all others."""

    keys: tuple[Any, ...]
    """Names, or codes that are the raw numbers themselves."""
    values: NDArray[Any]
    """(number of keys + 1,): one for each key, the last for every other value."""
    truncates: bool = False
    """Whether raw numbers are cut to whole ones before they are looked up."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a tensor, as a function of one raw column."""

    feature: int
    steps: tuple[Step, ...] = ()
    falls: bool = False
    """Whether larger raw numbers give smaller ones."""
    is_cut: bool = False
    """Whether it is a number cut to a whole one, which only a table may look up."""
    table: Table | None = None

    def after(self, step: Step, *, falls: bool = False) -> "Column":
        """Return this column after one more step."""
        if self.is_cut:
            raise UnsupportedModel(
                "A number that is cast to a whole one may only be looked up by OneHotEncoder or"
                " LabelEncoder, because the cast of large numbers is not defined."
            )
        if self.table is not None:
            return replace(self, table=replace(self.table, values=step(self.table.values)))
        return replace(self, steps=(*self.steps, step), falls=self.falls ^ falls)

    def values(self, raw: FloatArray) -> FloatArray:
        """What the column holds for raw numbers."""
        values: NDArray[Any] = raw
        for step in self.steps:
            values = step(values)
        return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Rows of columns, all of one type; `inner` columns belong together in a third dimension."""

    columns: tuple[Column, ...]
    dtype: int
    inner: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no file of a sane size needs."""
        if len(self.columns) > MAX_COLUMNS:
            raise UnsupportedModel(f"A tensor may have at most {MAX_COLUMNS:,} columns.")

    def after(
        self, steps: list[Step], dtype: int, *, falls: NDArray[np.bool_] | None = None
    ) -> Self:
        """Return this tensor after one step per column."""
        turned = np.zeros(len(steps), dtype=bool) if falls is None else falls
        pairs = zip(self.columns, steps, turned.tolist(), strict=True)
        columns = tuple(column.after(step, falls=turns) for column, step, turns in pairs)
        return replace(self, columns=columns, dtype=dtype)


@dataclass(frozen=True)
class RawRows:
    """The raw columns of a model, in the order of its inputs."""

    inputs: tuple[Input, ...]
    widths: tuple[int, ...]
    precision: Precision
    """float32 where every number that is fed is one."""

    @property
    def n_features(self) -> int:
        """Number of raw columns."""
        return sum(self.widths)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the raw columns; none for a single matrix."""
        if len(self.inputs) == 1 and self.inputs[0].dtype != STRING:
            return ()
        return tuple(
            found.name if width == 1 else f"{found.name}_{number}"
            for found, width in zip(self.inputs, self.widths, strict=True)
            for number in range(width)
        )

    def tensors(self) -> dict[str, Tensor]:
        """The inputs of the graph as tensors."""
        result, first = {}, 0
        for found, width in zip(self.inputs, self.widths, strict=True):
            columns = tuple(Column(number) for number in range(first, first + width))
            tensor = Tensor(columns, found.dtype)
            if found.dtype == FLOAT and self.precision == "float64":
                tensor = tensor.after([_cast_step(FLOAT)] * width, FLOAT)
            result[found.name] = tensor
            first += width
        return result

    def feedable(self, rows: FloatArray) -> FloatArray:
        """Rows that the inputs can hold: whole numbers where they are."""
        rows, first = rows.copy(), 0
        for found, width in zip(self.inputs, self.widths, strict=True):
            if found.dtype in (INT32, INT64):
                block = np.nan_to_num(rows[:, first : first + width])
                limit = 2.0**30 if found.dtype == INT32 else 2.0**53
                rows[:, first : first + width] = np.trunc(np.clip(block, -limit, limit))
            first += width
        return rows

    def feeds(
        self, rows: FloatArray, categories: dict[int, tuple[Any, ...]]
    ) -> dict[str, NDArray[Any]]:
        """Rows as onnxruntime takes them: one array per input, names in place of codes."""
        result, first = {}, 0
        for found, width in zip(self.inputs, self.widths, strict=True):
            block = rows[:, first : first + width]
            if found.dtype == STRING:
                named = [_named(block[:, k], categories[first + k]) for k in range(width)]
                result[found.name] = np.stack(named, axis=1)
            else:
                with np.errstate(over="ignore", invalid="ignore"):
                    result[found.name] = block.astype(NUMPY[found.dtype])
            first += width
        return result


def _named(codes: FloatArray, names: tuple[Any, ...]) -> NDArray[Any]:
    """Names of codes; every value that is no code gets a name that is none of theirs."""
    other = "?" + max(names, key=len, default="")
    known = [names[int(c)] if c in range(len(names)) else other for c in codes.tolist()]
    return np.array(known, dtype=object)


def raw_rows(graph: Graph, n_features: int | None, n_tested: int | None) -> RawRows:
    """The raw columns of a graph; a width that the file leaves open is given, or what is tested."""
    if not graph.inputs:
        raise BrokenModelFile("An ONNX model must have an input. Got none.")
    for found in graph.inputs:
        if found.dtype not in (*_NUMBERS, STRING):
            raise UnsupportedModel(
                f"The input '{found.name}' must hold floats, doubles, whole numbers or strings."
                f" Got type {found.dtype}."
            )
    widths = [found.n_columns for found in graph.inputs]
    if len(widths) == 1:
        widths = [widths[0] or n_features or n_tested]
    if any(width is None for width in widths):
        name = graph.inputs[widths.index(None)].name
        raise UnsupportedModel(
            f"The input '{name}' must state its number of columns. Got none. Export the model with"
            " the shape of its inputs, or say 'n_features' where it has one input."
        )
    if sum(width or 0 for width in widths) > MAX_COLUMNS:
        raise UnsupportedModel(f"A model may have at most {MAX_COLUMNS:,} columns.")
    is_single = all(found.dtype in (FLOAT, STRING) for found in graph.inputs)
    return RawRows(
        graph.inputs, tuple(width or 0 for width in widths), "float32" if is_single else "float64"
    )


Operand = Tensor | NDArray[Any]


def follow(node: Node, tensors: dict[str, Tensor], constants: dict[str, NDArray[Any]]) -> Tensor:
    """The output of one operator before the trees."""
    operator = _OPERATORS.get((node.domain, node.op))
    if operator is None:
        raise UnsupportedModel(
            f"The operator {node.op} before the trees is not supported, because it mixes columns or"
            f" is unknown. Supported are {', '.join(sorted({op for _, op in _OPERATORS}))}."
        )
    operands: list[Operand] = []
    for name in filter(None, node.inputs):
        if name not in tensors and name not in constants:
            raise UnsupportedModel(
                f"The operator {node.op} before the trees must read columns and constants. Got"
                f" '{name}', which is neither."
            )
        operands.append(tensors[name] if name in tensors else constants[name])
    return operator(node, operands)


def _columns(node: Node, operands: list[Operand]) -> Tensor:
    """The first operand, which must be columns."""
    if not operands or not isinstance(operands[0], Tensor):
        raise BrokenModelFile(f"The operator {node.op} must read columns first.")
    return operands[0]


def _numbers(node: Node, operands: list[Operand], known: tuple[int, ...] = _NUMBERS) -> Tensor:
    """The first operand, which must be columns of numbers."""
    tensor = _columns(node, operands)
    if tensor.dtype not in known:
        raise UnsupportedModel(
            f"The operator {node.op} before the trees must read numbers. Got type {tensor.dtype}."
        )
    return tensor


def _constant(node: Node, operands: list[Operand]) -> NDArray[Any]:
    """The second operand, which must be a constant of numbers."""
    found = operands[1] if len(operands) == 2 else None
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf":
        raise UnsupportedModel(f"The operator {node.op} must have a constant as its second input.")
    return found


def _cast_step(dtype: int) -> Step:
    target = NUMPY[dtype]

    def step(values: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return values.astype(target)

    return step


def _identity(node: Node, operands: list[Operand]) -> Tensor:
    return _columns(node, operands)


def _cast(node: Node, operands: list[Operand]) -> Tensor:
    tensor, target = _columns(node, operands), node.integer("to", FLOAT)
    if target == tensor.dtype:
        return tensor
    if tensor.dtype == STRING or target not in (FLOAT, DOUBLE, INT64):
        raise UnsupportedModel(
            "A cast before the trees must be from numbers to floats, doubles or int64."
            f" Got type {tensor.dtype} to {target}."
        )
    if target == INT64 and tensor.dtype in (FLOAT, DOUBLE):
        if any(column.steps or column.table for column in tensor.columns):
            raise UnsupportedModel("A cast to whole numbers must be of a raw column.")
        cut = tuple(replace(column, is_cut=True) for column in tensor.columns)
        return replace(tensor, columns=cut, dtype=target)
    # A float is a double as it is, and whole numbers are held as doubles.
    if target == FLOAT:
        return tensor.after([_cast_step(target)] * len(tensor.columns), target)
    return replace(tensor, dtype=target)


def _per_column(node: Node, values: NDArray[Any], n: int) -> NDArray[Any]:
    """One finite number per column, from as many or from one."""
    values = values.ravel()
    if len(values) == 1:
        values = np.repeat(values, n)
    if len(values) != n or not np.all(np.isfinite(values)):
        raise UnsupportedModel(
            f"The operator {node.op} must have a finite number per column, or one for all."
            f" Got {len(values)} for {n} columns."
        )
    return values


def _require_factors(node: Node, factors: NDArray[Any]) -> None:
    # Sound: a factor of zero would make NaN of infinity, and every step must keep numbers numbers.
    if np.any(factors == 0.0):
        raise UnsupportedModel(f"The operator {node.op} must not multiply or divide by zero.")


def _scaler(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _numbers(node, operands)
    n = len(tensor.columns)
    offset = _per_column(node, node.numbers("offset"), n).astype(np.float32)
    scale = _per_column(node, node.numbers("scale"), n).astype(np.float32)
    _require_factors(node, scale)
    # onnxruntime subtracts and multiplies in double where the input is double, else in float32.
    wide: Any = np.float64 if tensor.dtype == DOUBLE else np.float32

    def step(o: Any, s: Any) -> Step:
        def scaled(values: NDArray[Any]) -> NDArray[Any]:
            with np.errstate(over="ignore", under="ignore"):
                centred: NDArray[Any] = values.astype(wide) - wide(o)
                return (centred * wide(s)).astype(np.float32)

        return scaled

    steps = [step(o, s) for o, s in zip(offset, scale, strict=True)]
    return tensor.after(steps, FLOAT, falls=scale < 0.0)


def _imputer(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _numbers(node, operands)
    replaced = node.numbers("replaced_value_float")
    if tensor.dtype != FLOAT or len(replaced) != 1 or not np.isnan(replaced[0]):
        raise UnsupportedModel(
            "An Imputer must replace NaN among floats. Got another type or another value, which"
            " would cut a single number out of the order. Impute before the model."
        )
    imputed = _per_column(node, node.numbers("imputed_value_floats"), len(tensor.columns))

    def step(value: Any) -> Step:
        return lambda values: np.where(np.isnan(values), np.float32(value), values)

    return tensor.after([step(value) for value in imputed], FLOAT)


def _binarizer(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _numbers(node, operands, (FLOAT,))
    found = node.numbers("threshold")
    threshold = np.float32(found[0] if len(found) else 0.0)

    def step(values: NDArray[Any]) -> NDArray[Any]:
        return (values > threshold).astype(np.float32)

    return tensor.after([step] * len(tensor.columns), FLOAT)


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}


def _arithmetic(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _numbers(node, operands, (FLOAT, DOUBLE))
    dtype = NUMPY[tensor.dtype]
    number = _per_column(node, _constant(node, operands), len(tensor.columns)).astype(dtype)
    falls = np.zeros(len(number), dtype=bool)
    if node.op in ("Mul", "Div"):
        _require_factors(node, number)
        falls = number < 0.0
    compute = ARITHMETIC[node.op]

    def step(value: Any) -> Step:
        def computed(values: NDArray[Any]) -> NDArray[Any]:
            with np.errstate(over="ignore", under="ignore"):
                return np.asarray(compute(values.astype(dtype), value), dtype=dtype)

        return computed

    return tensor.after([step(value) for value in number], tensor.dtype, falls=falls)


def _looked_up(column: Column, dtype: int, keys: list[Any], values: NDArray[Any]) -> Column:
    """A raw column after a look-up; the last of the values stands for every other key."""
    if len(set(keys)) != len(keys):
        raise UnsupportedModel("The keys of an encoder must differ. Got one twice.")
    if column.table is not None:
        place = {key: number for number, key in enumerate(keys)}
        found = [place.get(key, len(keys)) for key in column.table.values.tolist()]
        return replace(column, table=replace(column.table, values=values[found]))
    if column.steps:
        raise UnsupportedModel(
            "An encoder must read a raw column. Got one that was changed before."
        )
    return Column(column.feature, table=Table(tuple(keys), values, column.is_cut))


def _one_hot(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _columns(node, operands)
    keys: list[Any] = node.texts("cats_strings")
    if tensor.dtype != STRING:
        keys = node.integers("cats_int64s").tolist()
        # onnxruntime cuts floats to whole numbers here.
        cut = tensor.dtype in (FLOAT, DOUBLE)
        columns = tuple(replace(column, is_cut=column.is_cut or cut) for column in tensor.columns)
        tensor = replace(tensor, columns=columns)
    n = len(keys)
    if n == 0 or tensor.inner is not None or n * len(tensor.columns) > MAX_COLUMNS:
        raise UnsupportedModel("A OneHotEncoder must have categories of the type of its columns.")
    if node.integer("zeros", 1) == 0:
        raise UnsupportedModel(
            "A OneHotEncoder must encode unknown categories as zeros. Got one that refuses them."
        )
    ones = np.vstack([np.eye(n, dtype=np.float32), np.zeros(n, np.float32)])
    columns = tuple(
        _looked_up(column, tensor.dtype, keys, ones[:, number])
        for column in tensor.columns
        for number in range(n)
    )
    return Tensor(columns, FLOAT, inner=n)


def _label_encoder(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _columns(node, operands)
    keys, values, default, dtype = encoder_table(node, tensor.dtype)
    table = np.concatenate([values, np.array([default], dtype=values.dtype)])
    columns = tuple(_looked_up(column, tensor.dtype, keys, table) for column in tensor.columns)
    return Tensor(columns, dtype, tensor.inner)


def encoder_table(node: Node, dtype: int) -> tuple[list[Any], NDArray[Any], Any, int]:
    """Keys, values, the value of all other keys, and the type of values of a LabelEncoder."""
    keys: list[Any]
    if node.texts("classes_strings"):
        keys = node.texts("classes_strings")
        if dtype != STRING:
            raise UnsupportedModel("A LabelEncoder of the first version must read strings.")
        return keys, np.arange(len(keys)), node.integer("default_int64", -1), INT64
    names = {STRING: "strings", INT64: "int64s", FLOAT: "floats"}
    if "keys_tensor" in node.attributes or "values_tensor" in node.attributes:
        raise UnsupportedModel("A LabelEncoder must have lists of keys and values. Got tensors.")
    if dtype not in names:
        raise UnsupportedModel(f"A LabelEncoder must read strings, int64 or float. Got {dtype}.")
    keys = node.texts("keys_strings")
    if dtype != STRING:
        keys = node.numbers(f"keys_{names[dtype]}").tolist()
    kinds = [kind for kind, name in names.items() if f"values_{name}" in node.attributes]
    if len(kinds) != 1:
        raise BrokenModelFile("A LabelEncoder must have one list of values.")
    kind, name = kinds[0], names[kinds[0]]
    found: NDArray[Any]
    if kind == STRING:
        found = np.array(node.texts("values_strings"), dtype=object)
        default: Any = node.text("default_string", "_Unused")
    else:
        found = node.numbers(f"values_{name}").astype(NUMPY[kind])
        given = node.numbers("default_int64" if kind == INT64 else "default_float")
        default = given[0] if len(given) else (-1 if kind == INT64 else -0.0)
    if len(found) != len(keys) or not keys:
        raise BrokenModelFile(
            "A LabelEncoder must have as many values as keys of the type that it reads."
            f" Got {len(found)} and {len(keys)}."
        )
    return keys, found, default, kind


def _concat(node: Node, operands: list[Operand]) -> Tensor:
    parts = [operand for operand in operands if isinstance(operand, Tensor)]
    if len(parts) != len(operands) or not parts:
        raise UnsupportedModel("Concat before the trees must join columns. Got a constant, too.")
    first, axis = parts[0], node.integer("axis", 0)
    if any(
        (part.dtype, part.inner is None) != (first.dtype, first.inner is None) for part in parts
    ):
        raise UnsupportedModel("Concat before the trees must join columns of one type and shape.")
    if first.inner is None:
        if axis not in (1, -1):
            raise UnsupportedModel(f"Concat before the trees must join columns. Got axis {axis}.")
        return replace(first, columns=sum((part.columns for part in parts), ()))
    inner = [part.inner or 0 for part in parts]
    if axis == 1 and len(set(inner)) == 1:
        return replace(first, columns=sum((part.columns for part in parts), ()))
    outer = {len(part.columns) // width for part, width in zip(parts, inner, strict=True)}
    if axis not in (2, -1) or len(outer) != 1:
        raise UnsupportedModel(f"Concat before the trees joins tensors in axis {axis}.")
    columns = sum(
        (
            part.columns[number * width : (number + 1) * width]
            for number in range(outer.pop())
            for part, width in zip(parts, inner, strict=True)
        ),
        (),
    )
    return replace(first, columns=columns, inner=sum(inner))


def _feature_vectorizer(node: Node, operands: list[Operand]) -> Tensor:
    parts = [_numbers(node, [operand]) for operand in operands]
    cast = [part.after([_cast_step(FLOAT)] * len(part.columns), FLOAT) for part in parts]
    if node.integers("inputdimensions").tolist() != [len(part.columns) for part in parts]:
        raise UnsupportedModel("A FeatureVectorizer must take all columns of its inputs.")
    return replace(cast[0], columns=sum((part.columns for part in cast), ()))


def _reshape(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _columns(node, operands)
    shape = [-1, len(tensor.columns)]
    if node.op == "Reshape":
        shape = _constant(node, operands).tolist()
    elif node.integer("axis", 1) != 1:
        raise UnsupportedModel("Flatten before the trees must keep the rows.")
    n = len(tensor.columns)
    if not isinstance(shape, list) or shape not in ([-1, n], [0, n], [0, -1]):
        raise UnsupportedModel(
            f"Reshape before the trees must keep the rows and their {n} columns. Got {shape}."
        )
    return replace(tensor, inner=None)


def _select(node: Node, operands: list[Operand]) -> Tensor:
    tensor = _columns(node, operands)
    chosen = _constant(node, operands)
    n = len(tensor.columns)
    is_gather = node.op == "Gather"
    if is_gather and (node.integer("axis", 0) not in (1, -1) or chosen.ndim != 1):
        raise UnsupportedModel("Gather before the trees must select columns.")
    numbers = chosen.ravel().astype(np.int64)
    numbers = np.where(is_gather & (numbers < 0), numbers + n, numbers)
    if tensor.inner is not None or not len(numbers) or numbers.min() < 0 or numbers.max() >= n:
        raise BrokenModelFile(f"The operator {node.op} selects columns that do not exist.")
    return replace(tensor, columns=tuple(tensor.columns[number] for number in numbers.tolist()))


_OPERATORS: dict[tuple[str, str], Callable[[Node, list[Operand]], Tensor]] = {
    ("", "Identity"): _identity,
    ("", "Cast"): _cast,
    ("", "Concat"): _concat,
    ("", "Reshape"): _reshape,
    ("", "Flatten"): _reshape,
    ("", "Gather"): _select,
    ("", "Add"): _arithmetic,
    ("", "Sub"): _arithmetic,
    ("", "Mul"): _arithmetic,
    ("", "Div"): _arithmetic,
    (ML, "ArrayFeatureExtractor"): _select,
    (ML, "Binarizer"): _binarizer,
    (ML, "FeatureVectorizer"): _feature_vectorizer,
    (ML, "Imputer"): _imputer,
    (ML, "LabelEncoder"): _label_encoder,
    (ML, "OneHotEncoder"): _one_hot,
    (ML, "Scaler"): _scaler,
}
