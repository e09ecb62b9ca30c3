"""Hatch: a wheel that carries machine code is for one Python and one system, any other for all."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelTag(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Sets the tag of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Look for compiled kernels, which `scripts/build-wheel` puts beside their sources."""
        compiled = Path(self.root) / "src" / "treeproof" / "kernels" / "compiled"
        # An editable install is no wheel for others.
        if version == "standard" and compiled.exists():
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
