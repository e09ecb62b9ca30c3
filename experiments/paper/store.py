"""Partial results on disk: long experiments can be stopped and go on where they were."""

import json
from pathlib import Path
from typing import Any

from treeproof.errors import InvalidInput

CACHE = Path(__file__).parents[1] / ".cache"


class Store:
    """JSON lines of finished rows, keyed by what was asked; the last line of a row counts.

    Parameters
    ----------
    name : str
        Name of the file.
    """

    def __init__(self, name: str) -> None:
        self.path = CACHE / f"{name}.jsonl"
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:
                    continue  # torn by an interruption; the row is computed again
                self.rows.setdefault(record["key"], {})[record["row"]] = record

    def add(self, key: str, row: int, **values: Any) -> None:
        """Keep a finished row; what was added is on disk when this returns."""
        record = {"key": key, "row": row, **values}
        self.rows.setdefault(key, {})[row] = record
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise InvalidInput(
                f"Partial results are kept in '{self.path}', which cannot be written: {error}."
            ) from error

    def of(self, key: str) -> dict[int, dict[str, Any]]:
        """Finished rows of a question, by number."""
        return self.rows.get(key, {})
