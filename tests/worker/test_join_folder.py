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

from rendezvous.wire.errors import JoinTimeout, UsageError
from worker.offer.join_folder import take_join

WAITER = """
import sys
from pathlib import Path
from worker.offer.join_folder import take_join
take_join(Path(sys.argv[1]), 60.0, lambda words: print(words, flush=True))
"""

TAKER = """
import sys
from pathlib import Path
from worker.offer.join_folder import take_join
for _ in range(10):
    print(take_join(Path(sys.argv[1]), 60.0, lambda words: None))
"""


def silent(_: str) -> None:
    """Say nothing."""


def test_who_takes_a_join_string_leaves_its_hostname_in_place_of_the_secret(tmp_path: Path) -> None:
    path = tmp_path / "rdzv-l-1-1.join"
    path.write_text("rdzv1-a-long-secret-" + "x" * 400)
    path.chmod(0o600)
    assert take_join(tmp_path, 1.0, silent).startswith("rdzv1-a-long-secret-xxx")
    (taken,) = tmp_path.iterdir()
    assert (taken.name, taken.read_text()) == ("rdzv-l-1-1.taken", socket.gethostname())
    assert stat.S_IMODE(taken.stat().st_mode) == 0o600


def test_of_many_workers_each_takes_another_one(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", TAKER, str(tmp_path)]
    takers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for number in range(40):  # while they are looking
        (tmp_path / "new").write_text(f"secret {number}")
        (tmp_path / "new").rename(tmp_path / f"rdzv-l-{number}-1.join")
    taken = [line for taker in takers for line in taker.communicate(timeout=30)[0].splitlines()]
    assert sorted(taken) == sorted(f"secret {number}" for number in range(40))


def test_half_written_files_and_those_that_are_taken_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rdzv-l-1-1.new").write_text("rdzv1-ha")
    (tmp_path / "rdzv-l-2-1.taken").write_text("host2")
    said: list[str] = []
    with pytest.raises(JoinTimeout, match=r"every join string in .* is taken \(1\): a spare"):
        take_join(tmp_path, 0.0, said.append)
    assert {path.name for path in tmp_path.iterdir()} == {"rdzv-l-1-1.new", "rdzv-l-2-1.taken"}


def test_a_worker_that_is_first_says_once_what_it_waits_for_and_gets_it(tmp_path: Path) -> None:
    said: list[str] = []

    def give(words: str) -> None:
        said.append(words)
        (tmp_path / "new").write_text("secret")
        (tmp_path / "new").rename(tmp_path / "rdzv-l-1-1.join")

    assert take_join(tmp_path, 30.0, give) == "secret"
    assert said == [f"no join string is in {tmp_path} yet"]


def test_a_worker_without_a_launcher_gives_up_and_says_what_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(JoinTimeout) as caught:
        take_join(tmp_path, 0.0, silent)
    assert caught.value.message == f"no join string is in {tmp_path}, after 0 s"
    assert "--scheduler external" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="a bind mount needs root")
def test_a_folder_that_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "rdzv-l-1-1.join").write_text("secret")
    script = (
        f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && exec "
        f'{sys.executable} -c "{WAITER}" {tmp_path}'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert UsageError.__name__ in done.stderr
    assert "from which no join string can be taken: Read-only file system" in done.stderr


def test_a_worker_that_waits_ends_on_term_even_as_the_first_process(tmp_path: Path) -> None:
    """As in a container, where a signal without a handler is dropped."""
    waiter = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", WAITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert waiter.stdout is not None
    with waiter.stdout as out:
        assert out.readline() == f"no join string is in {tmp_path} yet\n"
        children = Path(f"/proc/{waiter.pid}/task/{waiter.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        assert waiter.wait(20) == 128 + signal.SIGTERM
