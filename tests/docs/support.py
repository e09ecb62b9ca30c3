"""The support tables of the documentation, made from the registries.

`python -m tests.docs.support` writes the page; a test keeps it in step with the code.
"""

from pathlib import Path

from treeproof.engines.registry import ENGINES, engine_named
from treeproof.loaders.registry import ENTRIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "support.md"

INTRODUCTION = """\
# What is supported

Made from the registries of the package. What cannot be loaded or answered exactly is refused with a
sentence that says why. Every model also takes `classes`, names for the classes that it knows by
number, and `self_test`.
"""

CLOSING = """\
A complete engine always decides unless a limit is reached; the others give bounds, or witnesses,
and leave what they cannot decide undecided. Which guarantees stand behind each is told under
[soundness](../explanation/soundness.md).
"""

ANSWERS = {
    "exact": "exact, anytime, both bounds",
    "single_tree": "exact for one tree, linear time",
    "cliques": "exact for few trees or few features",
    "multilevel": "lower bounds, level by level",
    "combination": "lower bounds, tree by tree",
    "milp": "exact by integer programs (HiGHS)",
    "lp": "lower bounds by linear programs (HiGHS)",
    "smt": "exact for small boxes, rationals (z3)",
    "attack": "upper bounds with witnesses, white box",
    "hard_label": "upper bounds with witnesses, by queries",
}
"""What each engine of the registry guarantees, in a few words."""


def support_page() -> str:
    models = ["| model | options of `load` |", "|---|---|"]
    for entry in ENTRIES:
        options = ", ".join(f"`{name}`" for name in sorted(entry.options)) or "none"
        models += [f"| {kind} | {options} |" for kind in entry.kinds]
    answers = ["| engine | answers | complete |", "|---|---|---|"]
    for name in ENGINES:
        complete = "yes" if engine_named(name).is_complete else "no"
        answers.append(f"| `{name}` | {ANSWERS[name]} | {complete} |")
    tables = ["## Models", "\n".join(models), "## Engines", "\n".join(answers)]
    return "\n".join([INTRODUCTION, "\n\n".join(tables), "", CLOSING])


if __name__ == "__main__":
    PAGE.write_text(support_page(), encoding="utf-8")
