"""A pytest plug-in: the fixture `assert_robust`, with the threat file of the project.

pytest finds it by itself where treeproof is installed. Nothing heavy is imported until a test asks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a project name its threat file once, in its configuration of pytest."""
    parser.addini(
        "treeproof_threat",
        "Threat file (TOML) of assert_robust, from the root of the project.",
        default="",
    )


@pytest.fixture  # type: ignore[untyped-decorator] # pytest is not looked into
def assert_robust(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Fail a test unless enough rows are proved to keep their label; see `treeproof.assert_robust`.

    Without a radius it asks about the threat file that is given as ``threat``, or named by
    ``treeproof_threat`` in the configuration of pytest. The share that is verified is among the
    properties of the test, which ``--junit-xml`` writes.
    """

    def check(
        model: Any,
        X: Any,
        y: Any,
        within: Any = None,
        *,
        threat: Any = None,
        at_least: float = 0.8,
        **options: Any,
    ) -> Any:
        import treeproof

        loaded = model if isinstance(model, treeproof.Model) else treeproof.load(model)
        if within is None:
            asked = treeproof.load_threat(_file(request.config, threat))
            within, options = asked.perturbation(loaded, X), asked.options | options
        elif threat is not None:
            raise treeproof.InvalidInput(
                "assert_robust takes a radius or perturbation, or a threat file. Got both."
            )
        share = treeproof.verified_accuracy_score(loaded, X, y, eps=within, **options)
        request.node.user_properties.append(("treeproof_verified", share))
        return treeproof.assert_robust(loaded, X, y, within, at_least=at_least, **options)

    return check


def _file(config: pytest.Config, given: Any) -> Path:
    """The threat file of a call, or of the project."""
    from treeproof.errors import InvalidInput

    named = given or config.getini("treeproof_threat")
    if not named:
        raise InvalidInput(
            "assert_robust must know how rows may change. Got no radius and no threat file: give"
            " one as 'threat', or name it by treeproof_threat in the configuration of pytest."
        )
    return Path(named) if given else config.rootpath / named
