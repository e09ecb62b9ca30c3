"""The engines by name: the only list, in order of preference.

Engines are imported when they are asked for, so that optional solvers cost nothing.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from treeproof.engines.base import Engine
from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.query.query import Query


@dataclass(frozen=True, slots=True)
class Entry:
    """One engine of the registry.

    Attributes
    ----------
    module, factory : str
        Where the engine's class lives.
    answers : str
        What it guarantees, in a few words.
    """

    module: str
    factory: str
    answers: str

    def build(self) -> Engine:
        """Return the engine with its default options."""
        engine: Engine = getattr(import_module(self.module), self.factory)()
        return engine


_ENTRIES = {
    "exact": Entry("treeproof.engines.exact", "ExactEngine", "exact, anytime, both bounds"),
    "single_tree": Entry(
        "treeproof.engines.baselines.single_tree",
        "SingleTreeEngine",
        "exact for one tree, linear time",
    ),
    "cliques": Entry(
        "treeproof.engines.baselines.cliques", "CliqueEngine", "exact for few trees or few features"
    ),
    "multilevel": Entry(
        "treeproof.engines.baselines.multilevel", "MultilevelEngine", "lower bounds, level by level"
    ),
    "combination": Entry(
        "treeproof.engines.baselines.combination", "CombinationEngine", "lower bounds, tree by tree"
    ),
    "milp": Entry(
        "treeproof.engines.baselines.milp", "MilpEngine", "exact by integer programs (HiGHS)"
    ),
    "lp": Entry(
        "treeproof.engines.baselines.lp", "LpEngine", "lower bounds by linear programs (HiGHS)"
    ),
    "smt": Entry(
        "treeproof.engines.baselines.smt", "SmtEngine", "exact for small boxes, rationals (z3)"
    ),
    "attack": Entry(
        "treeproof.engines.attack", "AttackEngine", "upper bounds with witnesses, white box"
    ),
    "hard_label": Entry(
        "treeproof.engines.baselines.hard_label",
        "HardLabelEngine",
        "upper bounds with witnesses, by queries",
    ),
}


def engines() -> dict[str, Entry]:
    """Return every engine of this installation by name, preferred ones first."""
    return {name: entry for name, entry in _ENTRIES.items() if find_spec(entry.module)}


def engine_named(choice: str | Engine) -> Engine:
    """Return the engine of a name, or the given engine with its options.

    Raises
    ------
    InvalidInput
        The name is none of the registry's.
    """
    if not isinstance(choice, str):
        if not hasattr(choice, "verify") or not hasattr(choice, "refusal"):
            raise InvalidInput(
                "'engine' must be a name or an engine with its options, such as"
                f" tp.multilevel(T=2, L=1). Got {choice!r}."
            )
        return choice
    if choice not in _ENTRIES or not find_spec(_ENTRIES[choice].module):
        raise InvalidInput(f"'engine' must be one of {', '.join(engines())}. Got {choice!r}.")
    return _ENTRIES[choice].build()


def require_support(engine: Engine, query: Query) -> None:
    """Raise `UnsupportedQuery` with the engine's own sentence when it cannot answer."""
    sentence = engine.refusal(query)
    if sentence is not None:
        raise UnsupportedQuery(sentence)
