"""Answers about properties as a JSON file, for the report page."""

import json
from dataclasses import replace
from os import PathLike
from typing import Any

from treeproof.errors import InvalidInput
from treeproof.files import replacing
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble
from treeproof.query.description import describe, plain
from treeproof.query.domain import Features, column_types
from treeproof.query.names import feature_number
from treeproof.query.perturbations import Box, LInf, in_order
from treeproof.results.differences import DiffResult
from treeproof.results.properties import PropertyResult

FORMAT = "treeproof properties 1"


def save_property_results(
    path: str | PathLike[str],
    model: Any,
    results: list[tuple[str, PropertyResult]],
) -> None:
    """Write names and results of properties of a model, all asked over the same domain."""
    _save(path, {"model": _words_of_model(model)}, results)


def save_differences(
    path: str | PathLike[str],
    models: tuple[Any, Any],
    results: list[tuple[int, DiffResult]],
) -> None:
    """Write what was found about two models, around rows of these numbers, or -1 for a domain."""
    first, second = models
    head: dict[str, Any] = {
        "model": _words_of_model(first),
        "other": _words_of_model(second),
    }
    head["trees"] = results[0][1].trees.summary()
    parts = []
    for number, result in results:
        where = f" of row {number}" if number >= 0 else ""
        for what, part in (("scores", result.scores), ("labels", result.labels)):
            if part is not None:
                parts.append((f"two models: {what}{where}", replace(part, row=number)))
    _save(path, head, parts)


def _words_of_model(model: Any) -> dict[str, Any]:
    """A model as `inspect` tells it, and how it was loaded, so that it can be loaded again."""
    return model.inspect() | {"loading": model.ensemble.provenance.options}


def words_of_domain(
    domain: Box | LInf, ensemble: Ensemble, missing: Features = ()
) -> dict[str, Any]:
    """A domain as run files hold it: what features take by their numbers, categories by codes.

    `missing` are features that may be missing besides those that the domain names.
    """
    names = ensemble.feature_names
    plainly = in_order(replace(domain, domain=None), names, ensemble.n_features)
    words = describe(plainly)
    given = () if missing is None else missing
    given = [given] if isinstance(given, str | int) else list(given)
    if domain.domain is not None or given:
        types = column_types(domain.domain, accept_float64_rows(ensemble)).words()
        more = {feature_number(feature, ensemble.n_features, names) for feature in given}
        types["may_miss"] = sorted({*types["may_miss"], *more})
        words["domain"] = plain(types)
    return words


def _save(
    path: str | PathLike[str], head: dict[str, Any], results: list[tuple[str, PropertyResult]]
) -> None:
    domain = results[0][1].domain
    if any(result.domain != domain for _, result in results):
        raise InvalidInput("Answers of one file must be about one domain. Got several.")
    answers = [
        {"name": name} | result.record() | {"evidence": result.evidence} for name, result in results
    ]
    document = {"format": FORMAT} | head | {"domain": domain, "properties": answers}
    text = json.dumps(document, default=str, allow_nan=False)
    with replacing(path, "The file") as file:
        file.write(text.encode("utf-8"))


def is_property_file(path: str | PathLike[str]) -> bool:
    """Whether a file begins as `save_property_results` writes it."""
    try:
        with open(path, "rb") as file:
            return file.read(len(FORMAT) + 16).startswith(f'{{"format": "{FORMAT}"'.encode())
    except OSError:
        return False


def load_property_records(path: str | PathLike[str]) -> dict[str, Any]:
    """Read what `save_property_results` wrote."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, RecursionError, ValueError) as error:
        raise InvalidInput(f"The file '{path}' of properties cannot be read: {error}.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInput(f"'{path}' must be a file of `treeproof prove --out` or `diff --out`.")
    if not isinstance(document.get("properties"), list):
        raise InvalidInput(f"'{path}' must list its answers under 'properties'. It does not.")
    return document
