"""A real pgbouncer, of Debian's package, before a PostgreSQL of a test's own."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Literal

from tests.support.missing import give_up
from tests.support.postgres import Postgres, as_postgres, new_folder
from tests.support.waiting import until

Mode = Literal["session", "transaction", "statement"]


@contextlib.contextmanager
def pooler(postgres: Postgres, mode: Mode) -> Iterator[int]:
    """The port at which it answers for all databases of the server."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        give_up("pgbouncer is not installed: apt install pgbouncer")
    folder = new_folder(in_memory=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    (folder / "users").write_text('"rdzv" ""\n')
    settings = folder / "settings"
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={postgres.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\n"
    )
    with (folder / "log").open("wb") as log:
        words = [*as_postgres(), program, str(settings)]
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd="/")

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text("utf-8")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        until(answers)
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)
