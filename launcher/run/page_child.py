"""`rdzv launch --ui`: the page beside a launch, as a process of its own whose end ends nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from launcher.processes import end
from launcher.settings import LaunchSettings
from launcher.state.state_dir import StateDir
from rendezvous.door import own_command
from rendezvous.secret_variables import SECRET_VARIABLES, descriptor_of

_FAREWELL_SECONDS = 3.0
"""Those who look at the page are shown how the run ended; nobody else is waited for."""


@asynccontextmanager
async def page_beside(
    settings: LaunchSettings, state: StateDir, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """The page, where it was asked for, as long as the launch and a moment longer.

    Args:
        settings: Of the launch.
        state: Its folder.
        say: Shows a line to the person.
    """
    if not settings.ui:
        yield
        return
    try:
        child = await asyncio.create_subprocess_exec(
            *_command(settings, state),
            **_secrets(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for the launch
        )
    except OSError as exc:
        say(f"rdzv: the page could not be started: {exc.strerror}")
        yield
        return
    telling = asyncio.create_task(_tell(child, state.run, say))
    try:
        yield
    finally:
        await end(child, signal.SIGUSR1, _FAREWELL_SECONDS)
        telling.cancel()


def _command(settings: LaunchSettings, state: StateDir) -> list[str]:
    words = own_command("ui", state.run, "--state-dir", str(state.path.parent))
    words += ["--parent", str(os.getpid()), "--ui-listen", settings.ui_listen]
    words += ["--ui-port", str(settings.ui_port)] if settings.ui_port is not None else []
    words += [word for name in settings.ui_host for word in ("--ui-host", name)]
    words += ["--ui-actions"] if settings.ui_actions else []
    return words + (["--ui-behind-ingress"] if settings.ui_behind_ingress else [])


def _secrets(environ: Mapping[str, str]) -> dict[str, Any]:
    """Of all secrets it is given its key alone, in the file without a name that holds it."""
    held = [name for name in SECRET_VARIABLES if not name.startswith("RDZV_UI_KEY")]
    fd = descriptor_of(environ.get("RDZV_UI_KEY_FILE", ""))
    return {
        "env": {name: value for name, value in environ.items() if name not in held},
        "pass_fds": () if fd is None else (fd,),
    }


async def _tell(child: asyncio.subprocess.Process, run: str, say: Callable[[str], None]) -> None:
    """Show the link, unless what is shown is a log that others read: who has it may see the run."""
    assert child.stdout is not None
    async for line in child.stdout:
        link = line.decode("utf-8", "replace").strip()
        if sys.stderr.isatty():
            say(f"rdzv: see the run at {link} (opens once; 'rdzv ui {run}' prints another link)")
        else:
            place, _, _ = link.partition("#")
            say(
                f"rdzv: the page is at {place}: open it with your RDZV_UI_KEY, or have a link "
                f"printed on this machine with: rdzv ui {run}"
            )
