"""Where a node keeps its runs and shims is as in `places_courses.txt`.

Without a home, on disks that are full, read-only or somebody else's, and where nothing can be
executed: the kernel's answers are played. See `make reference`.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.courses import lines_in, write_down
from tests.worker.told import Told
from worker.program import state_home
from worker.rsh import shims

KNOWN = Path(__file__).with_name("places_courses.txt")
USER = 4_217
MB = 1 << 20


class Disk:
    """Folders below one folder, of which the kernel says what is put down here.

    Attributes:
        flags: Of the file system of a folder, by its name; 0: as usual.
        left: Bytes that are left there; None: it does not count them.
        closed: Names of those that cannot be written.
        fails: Names of those of which nothing can be known.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.told = Told()
        self.root = root
        self.flags: dict[str, int] = {}
        self.left: dict[str, int | None] = {}
        self.closed: set[str] = set()
        self.fails: set[str] = set()
        self.users: dict[str, int] = {}
        self.user = USER
        patch.setattr(state_home, "_TEMPORARY", (self.at("tmp"), self.at("var")))
        patch.setattr(os, "geteuid", lambda: self.user)
        patch.setattr(os, "getuid", lambda: self.user + 1)
        patch.setattr(os, "statvfs", self._statvfs)
        patch.setattr(os, "access", self._access)
        patch.setattr(pwd, "getpwuid", self._entry)
        patch.setattr(Path, "lstat", lambda path: self._about(path))

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def tell(self, what: str, *found: object) -> None:
        """What was found, wherever it is."""
        before = len(self.told.lines)
        self.told.of(what, *found)
        self.told.lines[before:] = [
            line.replace(str(self.root), "") for line in self.told.lines[before:]
        ]

    def _statvfs(self, path: Any) -> Any:
        name = Path(path).name
        if name in self.fails:
            raise OSError(5, "Input/output error")
        left = self.left.get(name, 900 * MB)
        flags = self.flags.get(name, 0)
        return SimpleNamespace(
            f_flag=flags, f_blocks=left is not None, f_bavail=(left or 0) // 512, f_frsize=512
        )

    def _access(self, path: Any, mode: int) -> bool:
        if Path(path) != Path("/"):
            self.told.lines.append(f"@ access {Path(path).name} {mode}")
        return Path(path).name not in self.closed

    def _entry(self, user: int) -> Any:
        if user == USER + 1:
            return SimpleNamespace(pw_dir=self.at("named"))
        raise KeyError(user)

    def _about(self, path: Path) -> Any:
        about = os.lstat(path)
        user = self.users.get(path.parent.name, self.user)
        return SimpleNamespace(st_mode=about.st_mode, st_uid=user)


def where_runs_are_kept(root: Path, patch: pytest.MonkeyPatch) -> Told:
    """For each thing that is wrong with the usual folder, and then with those in its place."""
    disk = Disk(root, patch)
    for name in ("home", "tmp", "var", "own", "named"):
        Path(disk.at(name)).mkdir()
    Path(disk.at("file")).write_text("")

    def asks(what: str, **environ: str) -> None:
        given = {name: disk.at(value) if value else "" for name, value in environ.items()}
        usual = state_home.usual_home(given)
        disk.tell(f"{what}: {sorted(environ.items())}", usual)
        found = state_home.state_home(given)
        disk.tell("found", found, state_home.why_elsewhere(given))
        made = [path for place in ("tmp", "var", "own") for path in Path(disk.at(place)).iterdir()]
        for path in made:
            disk.tell(f"is there {oct(stat.S_IMODE(path.lstat().st_mode))}", path)
            path.unlink() if path.is_symlink() else path.rmdir()

    asks("as usual", HOME="home", TMPDIR="own")
    asks("of the state", HOME="home", XDG_STATE_HOME="own")
    asks("named", HOME="file", RDZV_STATE_DIR="file/none", XDG_STATE_HOME="own")
    asks("no home", HOME="")
    asks("none at all")
    disk.user = 9
    asks("no name", HOME="", TMPDIR="own")
    disk.user = USER
    asks("a file", HOME="file", TMPDIR="own")
    wrongs: tuple[tuple[str, Callable[[], object]], ...] = (
        ("read-only", lambda: disk.flags.update(home=os.ST_RDONLY | os.ST_NOSUID)),
        ("nosuid alone", lambda: disk.flags.update(home=os.ST_NOSUID)),
        ("closed", lambda: disk.closed.add("home")),
        ("broken", lambda: disk.fails.add("home")),
        ("too little", lambda: disk.left.update(home=8 * MB - 512)),
        ("just enough", lambda: disk.left.update(home=8 * MB)),
        ("nobody counts", lambda: disk.left.update(home=None)),
    )
    for what, change in wrongs:
        change()
        asks(what, HOME="home")
        disk.flags.clear()
        disk.left.clear()
        disk.closed.clear()
        disk.fails.clear()
    disk.closed.add("home")
    for what, name in (("tmp", "tmp"), ("own as well", "own"), ("and the last", "var")):
        disk.closed.add(name)
        asks(f"closed: {what}", HOME="home", TMPDIR="own")
    disk.closed = {"home"}
    disk.users["tmp"] = USER + 1
    asks("of another user", HOME="home")
    disk.users.clear()
    for mode in (0o700, 0o750, 0o701, 0o500):
        spare = Path(disk.at(f"tmp/rdzv-state-{USER}"))
        spare.mkdir()
        spare.chmod(mode)
        asks(f"mode {oct(mode)}", HOME="home")
    Path(disk.at(f"tmp/rdzv-state-{USER}")).symlink_to(disk.at("named"))
    asks("a link", HOME="home")
    _where_they_are_found(disk)
    return disk.told


def _where_they_are_found(disk: Disk) -> None:
    """A run that may have begun in another one: by its name, or where the newest is."""
    folders = [
        Path(disk.at(name))
        for name in (
            "home/.local/state/rdzv",
            *(f"{place}/rdzv-state-{USER}" for place in ("own", "tmp", "var")),
        )
    ]
    runs = (("a",), ("a", "b"), ("b", "c"), ("c", "d"))
    for number, (folder, names) in enumerate(zip(folders, runs, strict=True)):
        for name in names:
            (folder / name).mkdir(parents=True)
        folder.chmod(0o700)
        os.utime(folder, (number, 30 - number))
    given = {"HOME": disk.at("home"), "TMPDIR": disk.at("own")}
    for what in ("the first is the newest", "the last is", "the newest is open to others", "named"):
        if what == "the last is":
            os.utime(folders[3], (9, 99))
        if what == "the newest is open to others":
            folders[3].chmod(0o755)
        if what == "named":
            given["RDZV_STATE_DIR"] = disk.at("var")
        disk.tell(what, *(state_home.home_with(given, run) for run in (*"abcd", "e", "", None)))
    nowhere = {"HOME": disk.at("none"), "TMPDIR": disk.at("nowhere")}
    disk.tell("no usual one", state_home.home_with(nowhere, None))


def where_shims_are_placed(root: Path, patch: pytest.MonkeyPatch) -> Told:
    """The first place where both can be executed; what is said of all the others."""
    told = Told()
    removed: list[Callable[[], object]] = []
    patch.setattr(shims, "atexit", SimpleNamespace(register=removed.append))
    patch.setattr(shims, "_MORE_PLACES", (f"{root}/d", f"{root}/e"))
    patch.setattr(shims, "places", lambda environ: (f"{root}/c", environ["MORE"], f"{root}/d"))
    patch.setattr(os, "getcwd", lambda: f"{root}/work")
    flags = {"c": os.ST_NOEXEC | os.ST_NOSUID}
    patch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_flag=flags.get(Path(path).parts[-4], 2))
    )
    made = [f"{root}/{name}" for name in ("c", "d", "e", "work")]
    for place in made:
        Path(place).mkdir()

    def tells(*words: object) -> None:
        told.lines += [
            str(one)
            .replace(str(root), "")
            .replace(sys.executable, "PYTHON")
            .replace(str(Path(shims.__file__).parents[1]), "WORKER")
            for one in words
        ]

    answers: dict[str, Any] = {}
    subprocess_of_ours = SimpleNamespace(
        **{name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    )
    patch.setattr(shims, "subprocess", subprocess_of_ours)

    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    as_usual = {"stdin": nothing, "stdout": nothing, "stderr": pipe, "timeout": 10.0}
    as_usual["check"] = False

    def runs(argv: list[Any], **how: Any) -> Any:
        shim = Path(argv[0])
        place = shim.relative_to(root).parts[0]
        tells(f"@ runs {place} {shim.name} {argv[1:]}{' as usual' * (how == as_usual)}")
        answer = answers.get(f"{place} {shim.name}", answers.get(place, (0, b"")))
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(returncode=answer[0], stderr=answer[1])

    subprocess_of_ours.run = runs
    denied = PermissionError(13, "Permission denied")
    late = subprocess.TimeoutExpired("ssh", 10.0)
    bad = (126, b"  " + b"y" * 300 + b" \xff bad interpreter \n")
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("well", {}),
        ("the first is not", {"a": bad}),
        ("ssh alone is not", {"a ssh": denied, "b rdzv-rsh": (3, b"x")}),
        ("it takes long", {"a": late}),
        ("it says much and runs", {"a": (0, b"warns")}),
        ("none of those that are named", {"a": denied, "b": OSError(8, "Exec format error")}),
        ("in no folder of ours but one", dict.fromkeys("abc", denied) | {"d": (1, b"")}),
        ("nowhere", dict.fromkeys(("a", "b", "c", "d", "work"), denied) | {"e": bad}),
        ("nowhere, without words", {n: OSError("odd") for n in ("a", "b", "c", "d", "e", "work")}),
    )
    for what, given in cases:
        answers.clear()
        answers.update(given)
        tells(f"* {what}")
        environ = {"MORE": f"{root}/nowhere"}
        try:
            found = shims.place_shims([root / "a" / "bin", root / "b"], "/s/a b/agent", environ)
        except OSError as exc:
            tells(f"! {exc.errno} {exc.strerror}")
        else:
            of_ours = found.name == "bin" and found.parent.name.startswith("rdzv-")
            tells(f"- {found.parent.parent if of_ours else found} {of_ours}")
            for shim in sorted(found.iterdir()):
                text = shim.read_text().splitlines()
                tells(f"- {shim.name} {oct(stat.S_IMODE(shim.stat().st_mode))}", *text)
        tells(*(f"- left {len([*Path(place).iterdir()])} in {place}" for place in made))
        tells(f"- removed at its end: {len(removed)}")
        while removed:
            removed.pop()()
        tells(f"- left then {sum(len([*Path(place).iterdir()]) for place in made)}")
    return told


COURSES: dict[str, Callable[[Path, pytest.MonkeyPatch], Told]] = {
    one.__name__: one for one in (where_runs_are_kept, where_shims_are_placed)
}


def _course(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """One of them, with nothing played once it is over."""
    told = COURSES[name](folder, monkeypatch)
    monkeypatch.undo()
    return told


@pytest.mark.parametrize("name", COURSES)
def test_where_things_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert _course(name, tmp_path, monkeypatch).lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    write_down(KNOWN, COURSES, _course)
