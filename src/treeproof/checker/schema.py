"""What a run file may hold, field by field; names and types that are not listed are rejected.

Only what a reader of the answers relies on is listed for the header: the model, the question, the
counts. Question and rows must hold nothing else, since an unknown field might change their meaning.
"""

from typing import Annotated, Any, Literal

import msgspec

Real = float | Literal["inf", "-inf"]
"""As JSON holds it; `float` reads it."""

Number = Real | bool
"""In a question, where 'below' may be false."""

Numbers = Number | list[Number]
Label = str | int | float | bool | None
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Arithmetic = Literal["real", "float64"]


class _Closed(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A record without any other fields."""


class Domain(_Closed):
    """Which rows there can be, with features by number; see `treeproof.Domain`."""

    integer: list[Count] = []
    values: list[tuple[Count, list[float]]] = []
    ranges: list[tuple[Count, Real, Real]] = []
    groups: list[tuple[list[Count], bool]] = []
    categorical: list[tuple[Count, list[float | tuple[float, list[float]]]]] = []
    may_miss: list[Count] = []
    may_fill: list[Count] = []
    allow_broken_rows: bool = False
    rules: list[str] = []


class PerRow(_Closed, tag_field="name", tag="PerRow"):
    """A radius or budget that every row record has of its own."""

    column: str | None = None


class _Ball(_Closed, tag_field="name"):
    """What balls have in common."""

    eps: Number | PerRow | None
    scale: Numbers | None
    below: Numbers
    above: Numbers
    frozen: list[int | str]
    low: Numbers
    high: Numbers
    relative: bool = False
    domain: Domain | None = None


class LInf(_Ball, tag="LInf"):
    """A ball; see `treeproof.LInf`."""


class L1(_Ball, tag="L1"):
    """See `treeproof.L1`."""


class L2(_Ball, tag="L2"):
    """See `treeproof.L2`."""


class L0(_Ball, tag="L0"):
    """See `treeproof.L0`."""


class Cost(_Closed, tag_field="name", tag="Cost"):
    """See `treeproof.Cost`; lines of its table: features of a choice, values from and to, price."""

    budget: Number | PerRow | None
    up: Numbers
    down: Numbers
    fixed: Numbers
    table: list[tuple[list[Count], list[float], list[float], Real]]
    frozen: list[int | str]
    low: Numbers
    high: Numbers
    relative: bool = False
    domain: Domain | None = None


class Box(_Closed, tag_field="name", tag="Box"):
    """A box for all rows, or one for each; see `treeproof.Box`."""

    low: Number | list[Number | list[Number]]
    high: Number | list[Number | list[Number]]
    domain: Domain | None = None


class KeepsLabel(_Closed, tag_field="name", tag="KeepsLabel"):
    """See `treeproof.KeepsLabel`."""


class AvoidsTarget(_Closed, tag_field="name", tag="AvoidsTarget"):
    """See `treeproof.AvoidsTarget`."""

    target: Label


class ScoreWithin(_Closed, tag_field="name", tag="ScoreWithin"):
    """See `treeproof.ScoreWithin`; lists have one bound per row."""

    low: Numbers
    high: Numbers


class ScoreChange(_Closed, tag_field="name", tag="ScoreChange"):
    """See `treeproof.ScoreChange`."""

    delta: Number


class Question(_Closed):
    """What was asked."""

    kind: Literal["verify", "radius"]
    perturbation: LInf | L1 | L2 | L0 | Cost | Box
    goal: KeepsLabel | AvoidsTarget | ScoreWithin | ScoreChange
    labels: Literal["given", "the model's own"]
    arithmetic: Arithmetic
    engine: dict[str, Label]
    search: dict[str, Label | list[Label]] = {}
    attacker_class: Label = None


class Model(msgspec.Struct, kw_only=True):
    """What the header says of the model."""

    fingerprint: str
    classes: list[Label]
    n_trees: Count
    n_features: Count
    feature_names: list[str]
    input_precision: str
    decision: str
    categorical: list[Count] | None = None
    categories: dict[str, list[Label]] = {}
    decision_rule: str | None = None
    decision_cut: Real | None = None
    objective: str = ""


class Data(msgspec.Struct, kw_only=True):
    """Which rows of the data were asked about."""

    n_asked: Count | None = None
    rows: str | None = None
    sample: Count | None = None
    merged: list["Data | None"] = []


class Header(msgspec.Struct, kw_only=True):
    """The first line of a run file."""

    record: Literal["header"]
    format: Literal[1]
    model: Model
    question: Question
    data: Data | None = None
    state: Literal["underway", "complete"] = "complete"
    n_rows: Count | None = None


Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Row(_Closed):
    """Every other line."""

    record: Literal["row"]
    row: Count
    label: Label
    verdict: Literal["verified", "falsified", "unknown"]
    lower: Real | None
    upper: Real | None
    exact: bool
    attained: bool
    witness: list[Real | None] | None
    witness_distance: Real | None
    seconds: Annotated[float, msgspec.Meta(ge=0.0)]
    reason: str
    statistics: dict[str, Label]
    values: list[Real | None] | None = None
    predicted: Label | msgspec.UnsetType = msgspec.UNSET
    witness_label: Label | msgspec.UnsetType = msgspec.UNSET
    evidence: str | None = None
    key: str = ""
    id: Label = None
    eps: Real | None = None
    shown: dict[str, float] = {}
    way: Count = 1
    cost: Real | None = None
    probability: Share | None = None
    witness_probability: Share | None = None


class ShownPair(_Closed):
    """The rows of a witness of a property, and what the models say of them."""

    changed: list[str]
    rows: list[dict[str, Real | None]]
    scores: list[list[Real | None]] | None
    labels: list[Label] | None
    probabilities: list[list[Share]] | None = None


class LabelCount(_Closed):
    """How many rows get a label."""

    label: Label
    rows: Count


class GroupDecisions(_Closed):
    """How many rows of a group get each label: the file's own counts, which nothing here checks."""

    feature: str
    value: str
    rows: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    decisions: list[LabelCount]


class Answer(_Closed):
    """An answer in a file of properties; its name and groups are the file's own words."""

    name: str
    claim: dict[str, Any]
    verdict: Literal["verified", "falsified", "unknown"]
    reason: str
    quantity: str
    lower: Real | None
    upper: Real | None
    exact: bool
    row: Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
    values: list[Real | None] | None
    seconds: Annotated[float, msgspec.Meta(ge=0.0)]
    witness: ShownPair | None
    statistics: dict[str, Label]
    evidence: str | None
    groups: list[GroupDecisions] = []


# Now, in one thread: msgspec works out what a type is when it is first used, and crashes where two
# threads do so at once.
for _record in (Header, Row, Answer):
    msgspec.json.Decoder(_record)
