"""The graph in an ONNX file: nodes with their attributes, inputs, outputs and constants."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.protobuf import Message

FLOAT, INT32, INT64, STRING, BOOL, DOUBLE = 1, 6, 7, 8, 9, 11
_INT8, _UINT8 = 3, 2
NUMPY: dict[int, np.dtype[Any]] = {
    FLOAT: np.dtype("<f4"),
    DOUBLE: np.dtype("<f8"),
    INT32: np.dtype("<i4"),
    INT64: np.dtype("<i8"),
    _INT8: np.dtype("i1"),
    _UINT8: np.dtype("u1"),
}

MAX_NODES = 10_000
"""Operators of a graph; exports of tree ensembles have a few dozen."""

ML = "ai.onnx.ml"

# Fields of the messages, by their numbers in the schema of ONNX.
_MODEL = {"producer": 2, "producer_version": 3, "graph": 7, "opsets": 8, "functions": 25}
_GRAPH = {"node": 1, "initializer": 5, "input": 11, "output": 12, "sparse": 15}
_NODE = {"input": 1, "output": 2, "op": 4, "attribute": 5, "domain": 7}
_TYPES = {2: 1, 3: 2, 4: 3, 5: 4, 7: 6, 8: 7, 9: 8}
"""Types of attributes, by the field that holds the value."""


@dataclass(frozen=True)
class Attribute:
    """One attribute of an operator; which field holds it depends on its type."""

    message: Message

    @cached_property
    def numbers(self) -> NDArray[Any]:
        """The numbers of an attribute of the type float, int, floats, ints or tensor."""
        if 5 in self.message:
            return tensor(self.message.message(5)).ravel()
        for number, read in ((7, self.message.reals), (2, self.message.reals)):
            if number in self.message:
                return read(number)
        return self.message.integers(8 if 8 in self.message else 3)

    @cached_property
    def texts(self) -> list[str]:
        """The strings of an attribute of the type string, strings or tensor."""
        if 5 in self.message:
            return self.message.message(5).texts(6)
        return self.message.texts(9 if 9 in self.message else 4)


@dataclass(frozen=True)
class Node:
    """One operator: what it is, what it reads and what it writes."""

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]

    def numbers(self, name: str) -> NDArray[Any]:
        """Numbers of an attribute; none where it is absent."""
        found = self.attributes.get(name)
        return np.zeros(0) if found is None else found.numbers

    def integers(self, name: str) -> NDArray[np.int64]:
        """Whole numbers of an attribute; none where it is absent."""
        found = self.numbers(name)
        if len(found) and found.dtype.kind not in "iu":
            raise BrokenModelFile(f"The attribute '{name}' of {self.op} must hold whole numbers.")
        return found.astype(np.int64)

    def integer(self, name: str, default: int) -> int:
        """One whole number."""
        found = self.integers(name)
        if len(found) > 1:
            raise BrokenModelFile(f"The attribute '{name}' of {self.op} must be one number.")
        return int(found[0]) if len(found) else default

    def texts(self, name: str) -> list[str]:
        """Strings of an attribute; none where it is absent."""
        found = self.attributes.get(name)
        return [] if found is None else found.texts

    def text(self, name: str, default: str) -> str:
        """One string."""
        found = self.texts(name)
        if len(found) > 1:
            raise BrokenModelFile(f"The attribute '{name}' of {self.op} must be one text.")
        return found[0] if found else default


@dataclass(frozen=True)
class Input:
    """An input of the graph: its type, and its number of columns where the file says it."""

    name: str
    dtype: int
    n_columns: int | None


@dataclass(frozen=True)
class Graph:
    """What a model computes, and who wrote it."""

    nodes: tuple[Node, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    constants: dict[str, NDArray[Any]]
    opsets: dict[str, int]
    producer: str


def read_graph(content: bytes) -> Graph:
    """Read a model; everything in it that could reach beyond the file is refused."""
    model = Message(content)
    if _MODEL["functions"] in model:
        raise UnsupportedModel("An ONNX model must not define functions of its own. Got some.")
    graph = model.message(_MODEL["graph"])
    if _GRAPH["node"] not in graph:
        raise BrokenModelFile("An ONNX model must have a graph with at least one operator.")
    if _GRAPH["sparse"] in graph:
        raise UnsupportedModel("An ONNX model must have dense constants. Got sparse ones.")
    opsets = {_domain(m.text(1)): m.integer(2, 1) for m in model.messages(_MODEL["opsets"])}
    nodes = graph.messages(_GRAPH["node"])
    if len(nodes) > MAX_NODES:
        raise UnsupportedModel(
            f"An ONNX graph may have at most {MAX_NODES:,} operators. Got {len(nodes):,}."
        )
    constants = {m.text(8): tensor(m) for m in graph.messages(_GRAPH["initializer"])}
    inputs = tuple(
        found
        for found in map(_input, graph.messages(_GRAPH["input"]))
        if found.name not in constants
    )
    # CatBoost gives the whole story of its build as a version, in many lines.
    version = model.text(_MODEL["producer_version"])
    version = "" if "\n" in version else version
    return Graph(
        nodes=tuple(map(_node, nodes)),
        inputs=inputs,
        outputs=tuple(m.text(1) for m in graph.messages(_GRAPH["output"])),
        constants=constants,
        opsets=opsets,
        producer=" ".join(filter(None, (model.text(_MODEL["producer"]), version))),
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _node(message: Message) -> Node:
    attributes: dict[str, Attribute] = {}
    for found in message.messages(_NODE["attribute"]):
        name = found.text(1)
        if name in attributes:
            raise BrokenModelFile(f"The attribute '{name}' of an operator occurs twice.")
        # Graphs within graphs, references to attributes of functions, sparse tensors.
        if any(number in found for number in (6, 11, 21, 22, 23)):
            raise UnsupportedModel(f"The attribute '{name}' of an operator holds a graph.")
        held = [kind for field, kind in _TYPES.items() if field in found]
        # Sound: onnxruntime takes the value of the type that is named, whatever else there is.
        if len(held) > 1 or (held and 20 in found and held != [found.integer(20)]):
            raise BrokenModelFile(f"The attribute '{name}' of an operator has values of two types.")
        attributes[name] = Attribute(found)
    return Node(
        op=message.text(_NODE["op"]),
        domain=_domain(message.text(_NODE["domain"])),
        inputs=tuple(message.texts(_NODE["input"])),
        outputs=tuple(message.texts(_NODE["output"])),
        attributes=attributes,
    )


def _input(message: Message) -> Input:
    name, kind = message.text(1), message.message(2)
    if 1 not in kind:
        raise UnsupportedModel(f"The input '{name}' of an ONNX model must be a tensor.")
    found = kind.message(1)
    dimensions = found.message(2).messages(1)
    if len(dimensions) > 2:
        raise UnsupportedModel(
            f"The input '{name}' of an ONNX model must have rows and columns."
            f" Got {len(dimensions)} dimensions."
        )
    n_columns = dimensions[1].integer(1, 0) if len(dimensions) == 2 else 0
    return Input(name, found.integer(1), n_columns if n_columns > 0 else None)


def tensor(message: Message) -> NDArray[Any]:
    """The numbers of a constant, in their shape; strings as objects."""
    shape, kind = message.integers(1), message.integer(2)
    if 13 in message or message.integer(14):
        raise UnsupportedModel(
            "The numbers of an ONNX model must be in the file itself. Got some in another file."
            " Save the model in one file."
        )
    values: NDArray[Any]
    if kind == STRING:
        values = np.array(message.texts(6), dtype=object)
    elif kind not in NUMPY:
        raise UnsupportedModel(
            f"The constants of an ONNX model must be numbers or strings. Got type {kind}."
        )
    elif 9 in message:
        raw = message.raw(9)
        if len(raw) % NUMPY[kind].itemsize:
            raise BrokenModelFile("A constant of the ONNX model holds a part of a number.")
        values = np.frombuffer(raw, NUMPY[kind])
    elif kind == FLOAT:
        values = message.reals(4)
    elif kind == DOUBLE:
        values = message.reals(10, "<f8")
    else:
        values = message.integers(7 if kind == INT64 else 5).astype(NUMPY[kind])
    n = 1
    for length in shape.tolist():
        n *= length
        if length < 0 or n > len(values):
            raise BrokenModelFile(f"A constant has {len(values)} numbers, but shape {shape}.")
    if n != len(values):
        raise BrokenModelFile(f"A constant has {len(values)} numbers, but shape {shape}.")
    return values.reshape(tuple(shape.tolist()))
