"""What pyproject.toml cannot say of the wheel: where one file goes."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Wheel(BuildHookInterface[Any]):
    """Puts the door beside the packages: `sources` moves folders only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See the interface; an editable installation runs the checkout's own door."""
        if version == "standard":
            build_data["force_include"]["rdzv_command.py"] = "rdzv/_app/rdzv_command.py"
