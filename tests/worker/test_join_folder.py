"""Taking a join string out of a folder that all workers share."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rendezvous.wire.errors import JoinTimeout
from tests.support.missing import need
from worker.offer.join_folder import take_join

TAKER = """
import sys
from pathlib import Path
from worker.offer.join_folder import take_join
for _ in range(10):
    print(take_join(Path(sys.argv[1]), 60.0, lambda words: print(words, flush=True)))
"""


def silent(_: str) -> None:
    """Say nothing."""


def give(folder: Path, words: str, number: int = 1) -> None:
    """As a launcher does."""
    (folder / "new").write_text(words)
    (folder / "new").rename(folder / f"rdzv-l-{number}-1.join")


def test_who_takes_a_join_string_leaves_its_hostname_in_place_of_the_secret(tmp_path: Path) -> None:
    give(tmp_path, "rdzv1-a-long-secret-" + "x" * 400)
    (tmp_path / "rdzv-l-1-1.join").chmod(0o600)
    on_term = signal.getsignal(signal.SIGTERM)
    assert take_join(tmp_path, 1.0, silent).startswith("rdzv1-a-long-secret-xxx")
    assert signal.getsignal(signal.SIGTERM) is on_term
    (taken,) = tmp_path.iterdir()
    assert (taken.name, taken.read_text()) == ("rdzv-l-1-1.taken", socket.gethostname())
    assert stat.S_IMODE(taken.stat().st_mode) == 0o600


def test_of_many_workers_each_takes_another_one(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", TAKER, str(tmp_path)]
    takers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for number in range(30):  # while they are looking
        give(tmp_path, f"secret {number}", number)
    lines = [line for taker in takers for line in taker.communicate(timeout=50)[0].splitlines()]
    taken = [line for line in lines if line.startswith("secret")]
    assert sorted(taken) == sorted(f"secret {number}" for number in range(30))


def test_a_worker_that_is_first_says_once_what_it_waits_for_and_gets_it(tmp_path: Path) -> None:
    said: list[str] = []

    def told(words: str) -> None:
        said.append(words)
        give(tmp_path, "secret")

    assert take_join(tmp_path, 30.0, told) == "secret"
    assert said == [f"{tmp_path} contains no join string yet"]


@pytest.mark.parametrize(
    ("there", "words", "hint"),
    [
        ([], "{} contains no join string (waited 0 s)", "--scheduler external"),
        (
            ["1-1.new", "2-1.taken"],
            "every join string in {} is taken (1); this worker is a spare",
            "",
        ),
    ],
)
def test_a_worker_for_whom_there_is_none_leaves_all_alone_and_says_what_to_look_at(
    tmp_path: Path, there: list[str], words: str, hint: str
) -> None:
    for name in there:
        (tmp_path / f"rdzv-l-{name}").write_text("rdzv1-ha")
    with pytest.raises(JoinTimeout) as caught:
        take_join(tmp_path, 0.0, silent)
    assert caught.value.message.startswith(words.format(tmp_path))
    assert hint in caught.value.hint
    assert {path.name for path in tmp_path.iterdir()} == {f"rdzv-l-{name}" for name in there}


@pytest.mark.skipif(os.geteuid() != 0, reason="a bind mount needs root")
def test_a_folder_that_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    need("unshare", "mount")
    give(tmp_path, "secret")
    script = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && exec "
    script += f'{sys.executable} -c "{TAKER}" {tmp_path}'
    argv = ["unshare", "--mount", "sh", "-c", script]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    assert "UsageError" in said
    assert "from which no join string can be taken: Read-only file system" in said


@pytest.mark.real_time
def test_a_worker_that_waits_ends_on_term_even_as_the_first_process(tmp_path: Path) -> None:
    """As in a container, where a signal without a handler is dropped."""
    need("unshare")
    waiter = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", TAKER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert waiter.stdout is not None
    with waiter.stdout as out:
        assert out.readline() == f"{tmp_path} contains no join string yet\n"
        children = Path(f"/proc/{waiter.pid}/task/{waiter.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        assert waiter.wait(20) == 128 + signal.SIGTERM


def test_a_file_that_another_worker_was_faster_with_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        give(tmp_path, f"secret {number}", number)
    rename = Path.rename

    def too_late(self: Path, target: Path) -> Path:
        if self.name.startswith("rdzv-l-1"):
            self.unlink()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", too_late)
    assert take_join(tmp_path, 1.0, silent) == "secret 2"
