"""A real PostgreSQL, of Debian's packages: a primary and standbys, which tests stop and kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import asyncpg
import psutil

from rendezvous.compat import timeout
from tests.support.missing import give_up
from tests.support.waiting import until

GUARDED, PASSWORD = "guarded", "canary-PASSWORD/of:the@guarded"
"""A user that needs a password, made with each database; all others need none."""
_ROOM = 512 << 20
_HBA = f"""
local all all trust
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "dynamic_shared_memory_type": "mmap",  # in its own folder, which goes with it
    "shared_buffers": "16MB",
    "max_wal_size": "128MB",
    "max_connections": "60",
    "autovacuum": "off",
    "wal_receiver_status_interval": "1",
    "wal_retrieve_retry_interval": "1s",
}


def missing() -> str:
    """Why no server can be started here; empty: one can."""
    return "" if _installed() else "PostgreSQL is not installed: apt install postgresql"


def programs() -> Path:
    """Where PostgreSQL's programs are; gives the test up where there are none."""
    if why := missing():
        give_up(why)
    return _installed()[-1].parent


def _installed() -> list[Path]:
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def as_postgres() -> list[str]:
    """What starts a program that ends with this process; PostgreSQL, and what its packages have
    beside it, refuses to run as root."""
    before = ["setpriv", "--pdeathsig=INT"]
    if os.geteuid() != 0:
        return [*before, "--"]
    user = pwd.getpwnam("postgres")
    return [*before, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


class Postgres:
    """One server. Made by `primary` or `standby`; `remove` ends it and removes all of it."""

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self.folder = folder
        self.data = folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._fsync = fsync
        self.name = "zero"  # as a standby, if it becomes one
        self._process: subprocess.Popen[bytes] | None = None
        self.standbys: list[Postgres] = []

    @classmethod
    def primary(cls, *, fsync: bool = False) -> Postgres:
        """A new one that runs.

        Args:
            fsync: Whether it writes through to the disk, which is then no file system in memory.
        """
        programs()  # where they are not installed there is no user of theirs, either
        made = cls(new_folder(in_memory=not fsync), fsync=fsync)
        try:
            made._call(
                "initdb", "-D", str(made.data), "-A", "trust", "-U", "rdzv", "-E", "UTF8",
                "--no-sync", "--no-locale", "--no-instructions",
            )  # fmt: skip
            hba = made.data / "pg_hba.conf"
            hba.write_text(_HBA, "utf-8")
            made.start()
        except BaseException:
            made.remove()
            raise
        return made

    def standby(self, name: str) -> Postgres:
        """A copy of it that follows, and is called this."""
        made = Postgres(new_folder(in_memory=not self._fsync), fsync=self._fsync)
        self.standbys.append(made)
        made.seed(name, self)
        return made

    def seed(self, name: str, primary: Postgres) -> None:
        """Follow another server with a copy of its files, and be called this; what was there before
        is lost."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.name = name
        source = f"host=127.0.0.1 port={primary.port} user=rdzv application_name={name}"
        self._call(
            "pg_basebackup", "-D", str(self.data), "-d", source, "-R", "-X", "stream",
            "-c", "fast", "--no-sync",
        )  # fmt: skip
        self.start()

    async def wait_for_one_of(self, *names: str) -> None:
        """From now on a commit is acknowledged once one of these standbys has it.

        So it is with each of them, once it is the primary; and all follow whichever that is.
        """
        wanted, all_of_them = f"ANY 1 ({', '.join(names)})", [self, *self.standbys]
        hosts = ",".join("127.0.0.1" for _ in all_of_them)
        ports = ",".join(str(one.port) for one in all_of_them)
        for one in all_of_them:
            source = f"host={hosts} port={ports} user=rdzv application_name={one.name}"
            source += " target_session_attrs=read-write"
            await one.execute(f"ALTER SYSTEM SET primary_conninfo = '{source}'")
            await one.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{wanted}'")
            await one.execute("SELECT pg_reload_conf()")
        async with timeout(10):
            while await self.execute("SHOW synchronous_standby_names") != wanted:
                await asyncio.sleep(0.01)
            while await self.execute(_FOLLOWING) != len(self.standbys):
                await asyncio.sleep(0.01)

    def dsn(self, database: str = "postgres", user: str = "rdzv", port: int | None = None) -> str:
        """Its address, or that of what is before it at another port."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    async def new_database(self) -> str:
        """The name of an empty database."""
        name = f"t{uuid.uuid4().hex}"
        await self.execute(f"CREATE DATABASE {name}")
        return name

    async def execute(self, query: str, database: str = "postgres") -> Any:
        """The first value that it answers."""
        connection = await asyncpg.connect(self.dsn(database))
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    async def speak_tls(self, certificate: Path, key: Path) -> None:
        """Have it offer TLS with these PEM files, from now on."""
        for source, name in ((certificate, "server.crt"), (key, "server.key")):
            file = self.data / name
            shutil.copyfile(source, file)
            file.chmod(0o600)
            if os.geteuid() == 0:
                user = pwd.getpwnam("postgres")
                os.chown(file, user.pw_uid, user.pw_gid)
        await self.execute("ALTER SYSTEM SET ssl = on")
        await self.execute("SELECT pg_reload_conf()")
        async with timeout(10):
            while await self.execute("SHOW ssl") != "on":
                await asyncio.sleep(0.01)

    # Its processes

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {**_SETTINGS, "port": str(self.port), "fsync": "on" if self._fsync else "off"}
        settings["unix_socket_directories"] = str(self.folder)
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*as_postgres(), programs() / "postgres", "-D", self.data, *options],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        until(self._is_ready)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text("utf-8")
        with contextlib.suppress(FileNotFoundError):
            lines = (self.data / "postmaster.pid").read_text("utf-8").splitlines()
            return lines[7:] != [] and lines[7].strip() in ("ready", "standby")
        return False

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Have it end, and wait for that."""
        how = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        if self._process is not None:
            self._process.send_signal(how[mode])
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """As a machine that loses its power: none of its processes does anything more."""
        if self._process is not None:
            family = self._signal(signal.SIGKILL)
            self._process.wait(30)
            psutil.wait_procs(family, 30)
            self._process = None
            self._release_memory()

    def _release_memory(self) -> None:
        """The segment by which it sees that an earlier one of the same folder has not ended."""
        lines = (self.data / "postmaster.pid").read_text("utf-8").splitlines()
        subprocess.run(["ipcrm", "--shmem-id", lines[6].split()[1]], check=True)

    def pause(self) -> None:
        """Stop all its processes where they are."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> list[psutil.Process]:
        assert self._process is not None
        first = psutil.Process(self._process.pid)
        family = [first, *first.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return family

    def promote(self) -> None:
        """Make a primary of a standby."""
        self._call("pg_ctl", "promote", "-D", str(self.data), "-w")

    def remove(self) -> None:
        """End it and its standbys, and leave nothing behind."""
        for standby in self.standbys:
            standby.remove()
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*as_postgres(), programs() / program, *arguments],
            capture_output=True,
            text=True,
            cwd="/",
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


_FOLLOWING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"


def new_folder(*, in_memory: bool) -> Path:
    """A folder of the server's own, in memory where there is room."""
    shm = Path("/dev/shm")
    there = in_memory and shm.is_dir() and shutil.disk_usage(shm).free > _ROOM
    folder = Path(tempfile.mkdtemp(prefix="rdzv-pg-", dir=shm if there else "/tmp"))
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


@contextlib.contextmanager
def one_primary(**how: bool) -> Iterator[Postgres]:
    """A primary, for a while."""
    made = Postgres.primary(**how)
    try:
        yield made
    finally:
        made.remove()


class Wire:
    """A TCP proxy to a server, which can be cut.

    Attributes:
        port: Where it listens.
        swallows: Drop what the server answers, from now on.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self.port = 0
        self.swallows = False
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.swallowed = asyncio.Event()

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        while self._pumps:
            await asyncio.wait(self._pumps)

    def cut(self) -> None:
        """Both ends of all connections see a reset."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, onward]
        for pump in (self._pump(reader, onward, False), self._pump(there, writer, True)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, answers: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if answers and self.swallows:
                    self.swallowed.set()
                else:
                    to.write(data)
        to.close()
