"""The engines by name: the only list, in order of preference.

Engines are imported when they are asked for, so that optional solvers cost nothing.
"""

from importlib import import_module
from importlib.metadata import entry_points

from treeproof.engines.base import Engine
from treeproof.errors import InvalidInput, UnsupportedQuery, nearest
from treeproof.query.query import Query

ENGINES = {
    "exact": "engines.exact.ExactEngine",
    "single_tree": "paper.single_tree.SingleTreeEngine",
    "cliques": "paper.cliques.CliqueEngine",
    "multilevel": "paper.multilevel.MultilevelEngine",
    "combination": "comparisons.combination.CombinationEngine",
    "milp": "comparisons.milp.MilpEngine",
    "lp": "comparisons.lp.LpEngine",
    "smt": "comparisons.smt.SmtEngine",
    "attack": "engines.attack.AttackEngine",
    "hard_label": "comparisons.hard_label.HardLabelEngine",
}
"""Where the class of each engine lives, below `treeproof`; preferred ones first."""
GROUP = "treeproof.engines"
"""The group of entry points by which other packages make their engines known."""


def engine_named(choice: str | Engine) -> Engine:
    """Return the engine of a name with its default options, or the given engine with its own."""
    if not isinstance(choice, str):
        is_engine = hasattr(choice, "verify") and hasattr(choice, "refusal")
        if not is_engine or isinstance(choice, type):
            raise InvalidInput(
                "'engine' must be a name or an engine with its options, such as"
                f" tp.multilevel(T=2, L=1) or tp.smt(). Got {choice!r}."
            )
        return choice
    if choice in ENGINES:
        module, _, class_name = ENGINES[choice].rpartition(".")
        engine: Engine = getattr(import_module(f"treeproof.{module}"), class_name)()
        return engine
    others = {point.name: point for point in entry_points(group=GROUP)}
    if choice not in others:
        known = [*ENGINES, *others]
        near = nearest(choice, known)
        raise InvalidInput(f"'engine' must be one of {', '.join(known)}. Got {choice!r}.{near}")
    try:
        found = others[choice].load()()
    except Exception as error:  # whatever a foreign package raises
        raise InvalidInput(
            f"The engine {choice!r} must be a class that needs no arguments, which its package has"
            f" at {others[choice].value}. Got {type(error).__name__}: {error}."
        ) from error
    return engine_named(found)


def require_support(engine: Engine, query: Query) -> None:
    """Raise `UnsupportedQuery` with the engine's own sentence when it cannot answer."""
    sentence = engine.refusal(query)
    if query.pricing is not None and not getattr(engine, "answers_prices", False):
        sentence = (
            f"The engine '{engine.name}' answers for plain LInf balls and boxes. Got a question"
            " with costs, relative units or a domain. Use 'exact' or 'milp'."
        )
    elif query.pricing is not None and query.pricing.others and engine.name == "milp":
        sentence = (
            "The engine 'milp' answers for one limit. Got a question with several limits, as All"
            " has. Use 'exact'."
        )
    if sentence is not None:
        raise UnsupportedQuery(sentence)
