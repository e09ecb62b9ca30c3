"""Whether two runs ask the same, so that what they verify can be compared."""

from typing import Any

from treeproof.errors import InvalidInput

_SAME = ("goal", "arithmetic", "attacker_class", "labels")


def refuse_other_question(there: dict[str, Any], here: dict[str, Any], run: str) -> None:
    """Refuse a run whose header `there` is about other changes or another claim than `here`.

    Limits may differ: radii and budgets are compared by those who know at which one they ask.
    """
    asked = [dict(header["question"]) for header in (there, here)]
    for question in asked:
        any_limit = dict.fromkeys({"eps", "budget"} & question["perturbation"].keys())
        question["perturbation"] = question["perturbation"] | any_limit
    for name in ("perturbation", *_SAME):
        values = [question.get(name) for question in asked]
        if values[0] != values[1]:
            part, old, new = differing_part(name, *values)
            raise InvalidInput(
                f"The run '{run}' must be about the same changes and claim. Its"
                f" {part} is {str(old)[:120]}, here it is {str(new)[:120]}."
            )


def differing_part(name: str, there: Any, here: Any) -> tuple[str, Any, Any]:
    """The first part in which two values differ: its place, such as ``scale[3]``, and both."""
    if isinstance(there, dict) and isinstance(here, dict):
        if there.get("name") != here.get("name"):  # of other kinds, with other parts
            return name, there, here
        parts = [(f"{name}.{key}", there.get(key), here.get(key)) for key in there | here]
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        parts = [(f"{name}[{at}]", *pair) for at, pair in enumerate(zip(there, here, strict=True))]
    else:
        return name, there, here
    return differing_part(*next(part for part in parts if part[1] != part[2]))
