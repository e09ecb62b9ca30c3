"""What journeys share: a shell, and values typed into the deployed model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from treeproof.cli.main import main


@pytest.fixture
def shell(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Type a line into a shell in a folder of its own, which must end with the given status."""
    monkeypatch.chdir(tmp_path)

    def call(line: str, status: int = 0) -> Result:
        result = CliRunner().invoke(
            main, line.split(), prog_name="treeproof", catch_exceptions=False
        )
        assert result.exit_code == status, f"{line}\n{result.output}"
        return result

    return call


def typed_in(answers: pd.DataFrame, columns: list[str], frame: pd.DataFrame) -> pd.DataFrame:
    """The evasions of a table, with every value as it is printed, in the frame's own types."""
    changed = answers[[f"{name} after" for name in columns]].set_axis(columns, axis=1)
    for name in columns:
        kind: Any = frame[name].dtype
        if isinstance(kind, pd.CategoricalDtype):
            changed[name] = pd.Categorical(changed[name], categories=kind.categories)
        elif np.issubdtype(kind, np.number):
            changed[name] = changed[name].astype(np.float64)
    return changed
