"""What pyproject.toml cannot say of a build: where one file goes, and of which commit it is."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Build(BuildHookInterface[Any]):
    """Puts the door and the commit beside the packages; `sources` moves folders only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See the interface; an editable installation runs the checkout's own door."""
        if version != "standard":
            return
        root, packages = Path(self.root), ""
        if self.target_name == "wheel":
            packages = "rdzv/_app/"
            build_data["force_include"]["rdzv_command.py"] = "rdzv/_app/rdzv_command.py"
        of = runpy.run_path(str(root / "launcher" / "show" / "installation.py"))
        self._written = tempfile.NamedTemporaryFile("w")  # noqa: SIM115 (as long as the build)
        self._written.write(f"{of['commit'](root)}\n")
        self._written.flush()
        build_data["force_include"][self._written.name] = f"{packages}commit"
