"""Answers about properties as a JSON file, for the report page."""

import json
from os import PathLike
from typing import Any

from treeproof.errors import InvalidInput
from treeproof.files import replacing
from treeproof.query.description import plain
from treeproof.results.properties import PropertyResult

FORMAT = "treeproof properties 1"


def save_property_results(
    path: str | PathLike[str],
    model: Any,
    domain: dict[str, Any],
    results: list[tuple[str, PropertyResult]],
) -> None:
    """Write names and results of properties, with their model and domain (`Ranges.words`)."""
    names = list(model.feature_names) or list(map(str, range(model.n_features)))
    document = {
        "format": FORMAT,
        "model": model.inspect(),
        "domain": plain(domain | {"features": names}),
        "properties": [
            {"name": name} | result.record() | {"evidence": result.evidence}
            for name, result in results
        ],
    }
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
    except (OSError, ValueError) as error:
        raise InvalidInput(f"The file '{path}' of properties cannot be read: {error}.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInput(f"'{path}' must be a file of `treeproof prove --out`.")
    return document
