"""Declarations of features: observers that a run does not need to start, run and end.

A feature is one folder below `features/`, and its `__init__.py` holds one `Feature`. A program
installs them first of all (`rdzv_command.py`); the core asks `declared()`, imports no feature, and
goes without any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rendezvous.channel import Asked, Lazy, Published

__all__ = ["Feature", "View", "declared", "install", "locating_command"]
__all__ += ["Asked", "Lazy", "Published"]  # of `rendezvous.channel`


@dataclass(frozen=True)
class View:
    """A view of a run that `rdzv status RUN` shows by the flag `--NAME`.

    Attributes:
        help: What it shows, for `--help`.
        show: `async (root, run, *, as_json) -> exit code`.
    """

    help: str
    show: Lazy


@dataclass(frozen=True)
class Feature:
    """Declaration of a feature.

    Attributes:
        name: Name of its folder.
        doc: Its page in `docs/`.
        needs: Features without which it cannot be.
        files: What of the checkout is its own beside its folder, `tests/features/NAME` and `doc`.
        topics: What its nodes publish, and are asked.
        run_files: Names of its files in a run's folder, which go with the launch.
        judge: Decides in the registry, a `Judge` of `rendezvous.registry.topics`.
        options: A `Settings` whose fields become options of a node and a launch: see
            `worker.options`.
        spec: `(settings) -> JSON or None`, which is its value in `RunSpec.features`; raises
            UsageError.
        switch: Name of the option that, set to `off`, ends all observation of running programs.
        node: `async (port) -> None` on each node: see `worker.agent.port`.
        launcher: `async (port) -> None` in the launcher: see `launcher.port`.
        commands: Click commands, each by the one that stands after it in `rdzv --help`.
        codes: What exit codes mean with it, by `ExitCode`, where `--help` says less without it.
        locates: The command that shows where the ranks of a run are: `rdzv NAME {run}`.
        status: What `rdzv status RUN` adds of it: a `launcher.show.status.Shown`.
        views: Further views of `rdzv status RUN`, by name.
        page: What it adds to the page: see `launcher.ui.parts`.
        script: Its module of the page, beside the declaration; empty: none.
    """

    name: str
    doc: str = ""
    needs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    topics: tuple[Published | Asked, ...] = ()
    run_files: tuple[str, ...] = ()
    judge: Lazy | None = None
    options: Lazy | None = None
    spec: Lazy | None = None
    switch: str = ""
    node: Lazy | None = None
    launcher: Lazy | None = None
    commands: Mapping[str, Lazy] = field(default_factory=dict)
    codes: Mapping[int, str] = field(default_factory=dict)
    locates: str = ""
    status: Lazy | None = None
    views: Mapping[str, View] = field(default_factory=dict)
    page: Lazy | None = None
    script: str = ""


_installed: list[tuple[Feature, ...]] = []


def install(features: tuple[Feature, ...]) -> None:
    """Set the features of this process, before it imports what reads them."""
    _installed[:] = [features]


def declared() -> tuple[Feature, ...]:
    """The features of this process, in the order in which they are shown."""
    if not _installed:
        raise RuntimeError("no features are installed: a program calls install() before all else")
    return _installed[0]


def locating_command(run: str) -> str:
    """The command that shows where the ranks of this run are; empty: no feature has one."""
    return next((one.locates.format(run=run) for one in declared() if one.locates), "")
