"""`Ensemble`: the canonical, frozen form of every supported model.

One split test everywhere: a node sends a row left iff ``x[feature] < threshold``. Loaders turn the
rule of their library into such a canonical threshold (docs/explanation/semantics.md), so that no
later step needs to know where a model came from.
"""

import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]

MISSING_LEFT = 1  # flag: a missing value goes left (otherwise right)
ZERO_IS_MISSING = 2  # flag: |x| <= ZERO_BAND counts as missing (LightGBM's zero_as_missing)
CATEGORICAL = 4  # flag: the test is "category in set goes left", the threshold is unused
WHOLE_CATEGORY = 8  # flag: a fraction is in no set (scikit-learn; other libraries truncate it)
NONNEGATIVE_CATEGORY = 16  # flag: -1 < x < 0 is in no set (LightGBM truncates it to category 0)
FLAGS = 31  # all of them

ZERO_BAND = float(np.float32(1e-35))
"""LightGBM's kZeroThreshold, a float32 constant that is widened before the comparison."""


class TreeArrays(NamedTuple):
    """All trees as flat arrays; nodes of tree k are ``root[k] <= node < root[k + 1]``, preorder."""

    root: IntArray  # (n_trees + 1,) first node of each tree; at the end the number of nodes
    feature: IntArray  # (n_nodes,) feature that an inner node tests; -1 at a leaf
    # Canonical threshold of a numeric split; 0.0 at leaves and categorical nodes. Minus infinity
    # where nothing but a missing value goes left (no number is below it).
    threshold: FloatArray  # (n_nodes,)
    left: IntArray  # (n_nodes,) child as a node number, always ``node + 1``; -1 at a leaf
    right: IntArray  # (n_nodes,) likewise
    # Sum of MISSING_LEFT, ZERO_IS_MISSING, CATEGORICAL, and for categorical nodes WHOLE_CATEGORY,
    # NONNEGATIVE_CATEGORY; 0 at a leaf.
    flags: NDArray[np.uint8]  # (n_nodes,)
    category_set: IntArray  # (n_nodes,) which set a categorical node tests; -1 elsewhere
    set_offset: NDArray[np.int64]  # (n_sets + 1,) where each set starts in `set_words`
    # Bit ``c % 32`` of word ``c // 32`` is set iff category c is in the set (goes left).
    set_words: NDArray[np.uint32]  # (n_words,)
    leaf: IntArray  # (n_nodes,) row of `leaf_value` for a leaf; -1 at inner nodes
    # What a leaf adds, exactly as the library stores it. Width 1: added to output
    # ``tree_output[k]``. Width n_outputs: added to all outputs.
    leaf_value: FloatArray  # (n_leaves, leaf_width)
    leaf_source: IntArray  # (n_leaves,) the library's own number (of its apply, pred_leaf)
    tree_output: IntArray  # (n_trees,) output that a tree of width 1 adds to; -1 for vector leaves

    def categories_in(self, sets: Iterable[int]) -> NDArray[np.int64]:
        """Categories of some sets, each once, in order."""
        parts = [self.set_words[self.set_offset[n] : self.set_offset[n + 1]] for n in sets]
        # As words, so that however many sets take no more room than the largest one.
        union = np.zeros(max(map(len, parts), default=0), dtype=np.uint32)
        for part in parts:
            union[: len(part)] |= part
        return ones_in(union)


def ones_in(words: NDArray[np.integer]) -> NDArray[np.int64]:
    """Places of the bits that are 1 in words of 32 bits."""
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")
    return np.flatnonzero(bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """How leaf values become margins: accumulate tree by tree, then finish.

    The accumulator of output o starts at ``start[o]`` and takes the leaf values of its trees in
    tree order, every addition rounded to `precision`. Then `finish` is applied:

    * ``"none"``: the margin is the accumulator;
    * ``"divide"``: accumulator / divisor;
    * ``"affine"``: scale * accumulator + bias[o], in float64, then rounded to `precision`;
    * ``"isolation"``: -2 ** (-accumulator / divisor) - bias[0] (isolation forests).
    """

    precision: Literal["float32", "float64"]
    start: tuple[float, ...]
    finish: Literal["none", "divide", "affine", "isolation"] = "none"
    divisor: float = 1.0
    scale: float = 1.0
    bias: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How margins become a label; ties are part of the rule.

    * ``"threshold"``: one output; class 1 iff ``margin >= cut``. `cut` is the smallest float (of
      the aggregation's precision) that the library labels 1, so strict and non-strict rules and
      saturating links are all the same test here.
    * ``"argmax"``: first index of the largest ``link(margins / link_divisor)``. Links other than
      identity are monotone but may round different margins to the same number, which decides ties:
      ``"softmax_..."``, or ``"sigmoid_float64"``, each margin's own sigmoid of ``link_scale`` times
      it, which is 1.0 for every large margin.
    * ``"score"``: no label; the margin itself is the answer (regression, ranking).
    """

    kind: Literal["threshold", "argmax", "score"]
    cut: float = 0.0
    link: Literal["identity", "softmax_float32", "softmax_float64", "sigmoid_float64"] = "identity"
    link_divisor: float = 1.0
    link_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the model came from and what was noticed on the way."""

    library: str
    library_version: str = "unknown"
    source: str = ""
    file_sha256: str = ""
    objective: str = ""
    notes: tuple[str, ...] = ()
    self_test: str = "not run"
    options: dict[str, Any] = field(default_factory=dict)
    """How it was loaded: options of `treeproof.load` that were given, as plain data."""
    own_classes: tuple[Any, ...] = ()
    """Classes as the model's library has them, where the user named them; labels may be either."""


class _Cache(dict[Any, Any]):
    """What was worked out of an ensemble; it lives as long as the ensemble, and is not pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Cache, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """A tree ensemble with explicit semantics, validated once on construction."""

    trees: TreeArrays  # every array is read-only
    n_features: int
    n_outputs: int  # number of margins per row
    input_precision: Literal["float32", "float64"]  # to which rows are rounded before comparisons
    aggregation: Aggregation  # how leaves become margins
    decision: Decision  # how margins become a label
    classes: tuple[Any, ...] = ()  # labels as the library reports them; empty for scores
    feature_names: tuple[str, ...] = ()  # one per feature, or empty
    # For each categorical feature whose raw values are not codes: the raw values, in code order;
    # empty where there are such values, but the model does not tell them.
    categories: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    # Features that the library knows as categorical, tested by a node or not, where it says so.
    categorical: tuple[int, ...] = ()
    missing_allowed: bool = True  # whether the library accepts NaN in a row
    infinite_allowed: bool = True
    # Features that must not be missing where others may, and for categories the codes that are
    # accepted; empty for numbers.
    required: dict[int, tuple[int, ...]] = field(default_factory=dict)
    provenance: Provenance  # not part of `fingerprint`
    # Whether questions are about all real numbers; otherwise about doubles, which only a model
    # that compares these takes as they are. Not part of `fingerprint` either; see `for_reals`.
    over_reals: bool = field(default=False, init=False)
    _cache: _Cache = field(default_factory=_Cache, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check every structural rule, then make the arrays read-only."""
        # Not at the top: the rules are written in terms of this module.
        from treeproof.model.validation import validate

        validate(self)
        for array in self.trees:
            array.setflags(write=False)
        object.__setattr__(self, "over_reals", self.input_precision == "float32")

    @property
    def worked_out(self) -> dict[Any, Any]:
        """What was worked out of this ensemble, by what works it out."""
        return self._cache

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.trees.tree_output)

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return len(self.trees.leaf_value)

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for scores."""
        return len(self.classes)

    @property
    def is_categorical(self) -> NDArray[np.bool_]:
        """Whether each feature holds categories, which are no numbers to move.

        Codes that nodes compare as numbers, as of ordered categories, are numbers.
        """
        trees, holds = self.trees, np.zeros(self.n_features, dtype=bool)
        holds[[*self.categories, *self.categorical]] = True
        holds[trees.feature[trees.feature >= 0]] = False
        holds[trees.feature[(trees.feature >= 0) & ((trees.flags & CATEGORICAL) > 0)]] = True
        return holds

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides margins and labels (not of names or provenance).

        Which values are refused at the door is left out, but for missing ones in all of a row: a
        live model and its file may differ in that, and are the same model.
        """
        return _fingerprint(self)

    def with_provenance(self, provenance: Provenance | None = None, **changes: Any) -> Self:
        """Return a copy with another provenance, or whose own has the given fields replaced.

        Everything that was checked is the same, so nothing is checked again, and what was worked
        out of the trees serves both.
        """
        twin = copy.copy(self)
        changed = replace(self.provenance, **changes) if provenance is None else provenance
        object.__setattr__(twin, "provenance", changed)
        return twin

    def for_reals(self) -> Self:
        """Return a copy for questions in which rows are real numbers."""
        twin = copy.copy(self)
        object.__setattr__(twin, "over_reals", True)
        object.__setattr__(twin, "_cache", _Cache())
        return twin


def cached_per_ensemble(build: Callable[[Ensemble], Value]) -> Callable[[Ensemble], Value]:
    """Work out what a function returns once for every ensemble.

    The function must not depend on the provenance: ensembles that differ in nothing else share
    what was worked out.
    """

    @wraps(build)
    def value_of(ensemble: Ensemble) -> Value:
        cache = ensemble.worked_out
        if build not in cache:
            cache[build] = build(ensemble)
        value: Value = cache[build]
        return value

    return value_of


@cached_per_ensemble
def _fingerprint(ensemble: Ensemble) -> str:
    digest = hashlib.sha256(b"treeproof ensemble 1\n")
    for name, array in ensemble.trees._asdict().items():
        if name == "leaf_source":
            continue
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    parts = (
        repr(ensemble.n_features),
        repr(ensemble.n_outputs),
        repr(ensemble.input_precision),
        _written_out(ensemble.aggregation),
        _written_out(ensemble.decision),
        repr(ensemble.missing_allowed),
    )
    digest.update(f"({', '.join(parts)})".encode())
    return digest.hexdigest()


_FIRST_FIELDS = {
    "Aggregation": ("precision", "start", "finish", "divisor", "scale", "bias"),
    "Decision": ("kind", "cut", "link", "link_divisor", "link_scale"),
}
"""Fields of format 1 of the fingerprint, which are always part of it."""


def _written_out(part: Aggregation | Decision) -> str:
    """A part as text that is the same in every version of treeproof and of NumPy.

    Fields that came later are left out where they have their default, which must mean what was
    meant before there was such a field: so runs, evidence and files know their model again.
    """
    name = type(part).__name__
    words = [
        f"{item.name}={_plain(getattr(part, item.name))!r}"
        for item in fields(part)
        if item.name in _FIRST_FIELDS[name] or getattr(part, item.name) != item.default
    ]
    return f"{name}({', '.join(words)})"


def _plain(value: Any) -> Any:
    """Python's own numbers in place of NumPy's, and floats in place of whole numbers."""
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return value if isinstance(value, str | bool) else float(value)
