"""Who is informed by a signal: those who handle it, and nobody who would die of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import until
from worker.program import informing as module
from worker.program.informing import Told, inform, to_inform
from worker.program.process_table import Details, Process, descendants, read_details, send

USR1 = signal.SIGUSR1
HANDLES = Details((b"python", b"train.py"), caught=frozenset([USR1]))
DOES_NOT = Details((b"python", b"train.py"))
OWN = Details((b"python3", b"-I", b"-S", b"keeper.py"), caught=frozenset([USR1]))
TORCHRUN = Details((b"python3", b"/v/bin/torchrun", b"a.py"), caught=frozenset([USR1]))
MODULE = Details((b"python3", b"-m", b"torch.distributed.run"), caught=frozenset([USR1]))
PREPARES = "import signal, time; {}; open('{}', 'w').close(); time.sleep(60)"
HANDLER = "signal.signal(signal.SIGUSR1, lambda *_: exit(7))"


def tree(*parents: int) -> list[Process]:
    """Processes 2, 3 ... with these parents; 1 is the agent's own."""
    return [Process(2 + n, parent, 1, "S", 100, 0) for n, parent in enumerate(parents)]


@pytest.mark.parametrize(
    ("parents", "looks", "told", "informed"),
    [
        pytest.param((1,), [("python3", HANDLES)], [], [2], id="a program"),
        pytest.param((1,), [("python3", DOES_NOT)], [], [], id="one that would die"),
        pytest.param((1,), [("", HANDLES)], [], [], id="one that cannot be seen"),
        pytest.param((1, 2), [("bash", DOES_NOT), ("python3", HANDLES)], [], [3], id="wrapped"),
        pytest.param((1, 2), [("bash", HANDLES), ("python3", DOES_NOT)], [], [], id="EXIT trap"),
        pytest.param((1, 2), [("prterun", HANDLES), ("a.out", HANDLES)], [], [3], id="led"),
        pytest.param((1, 2), [("python3", OWN), ("python3", HANDLES)], [], [3], id="kept"),
        pytest.param((1, 2), [("python3", TORCHRUN), ("python3", HANDLES)], [], [3], id="torchrun"),
        pytest.param((1, 2), [("python3", MODULE), ("python3", HANDLES)], [], [3], id="module"),
        pytest.param(
            (1, 2, 2, 3),
            [("python3", DOES_NOT), ("python3", HANDLES), ("python3", HANDLES)],
            [],
            [3, 4],
            id="ranks, and what one has forked",
        ),
        pytest.param(
            (1, 2, 3),
            [("python3", HANDLES), ("python3", HANDLES), ("python3", HANDLES)],
            [(2, 100)],
            [],
            id="what one that was told has forked",
        ),
        pytest.param((1,), [("python3", HANDLES)], [(2, 99)], [2], id="a number used again"),
    ],
)
def test_the_topmost_that_handle_it_are_informed(
    parents: tuple[int, ...],
    looks: list[tuple[str, Details]],
    told: list[tuple[int, int]],
    informed: list[int],
) -> None:
    seen = dict(enumerate(looks, start=2))
    found = to_inform(tree(*parents), USR1, frozenset(told), seen.__getitem__)
    assert [process.pid for process in found] == informed


def test_a_script_and_a_rank_that_starts_live_on_and_those_that_handle_it_end(
    tmp_path: Path,
) -> None:
    """As when a node is drained: bash with and without a trap, and what they have started."""
    script = '{trap}\n{python} -c "{code}"; echo $? > {file}.code; sleep 60'
    with ExitStack() as stack:
        shells = []
        for name, trap, does in (("a", "", HANDLER), ("b", "trap : EXIT", HANDLER), ("c", "", "0")):
            code = PREPARES.format(does, tmp_path / name)
            values = {"trap": trap, "python": sys.executable, "code": code}
            text = script.format(**values, file=tmp_path / name)
            shell = stack.enter_context(subprocess.Popen(["bash", "-c", text]))
            stack.callback(_end, shell)
            shells.append(shell)
        until(lambda: all((tmp_path / name).exists() for name in "abc"))
        assert USR1 in read_details(shells[1].pid).caught
        # What another test has left below this process is told as well.
        own = {each.pid for shell in shells for each in descendants(shell.pid)}
        told = Told(each for each in inform(USR1, Told()) if each[0] in own)
        codes = [tmp_path / f"{name}.code" for name in "ab"]
        until(lambda: all(code.exists() and code.read_text() for code in codes))
        assert [code.read_text() for code in codes] == ["7\n", "7\n"]
        assert len(told) == 2
        assert not (tmp_path / "c.code").exists()
        assert {each for each in inform(USR1, told) if each[0] in own} == told
        assert [shell.poll() for shell in shells] == [None, None, None]


def test_who_has_received_it_is_known_by_number_and_start_and_is_sent_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that has taken the number of one that ended receives it as well."""
    sent: list[tuple[int, int]] = []
    found = [Process(201, 9, 5, "S", 77, 0), Process(202, 201, 6, "S", 78, 0)]
    found += [Process(203, 9, 7, "S", 79, 0), Process(204, 9, 8, "S", 80, 0)]
    looks = {pid: ("python3", HANDLES if pid != 204 else DOES_NOT) for pid in range(201, 205)}
    monkeypatch.setattr(module, "descendants", lambda root: found)
    monkeypatch.setattr(module, "_look", looks.__getitem__)
    monkeypatch.setattr(module, "send", lambda *what: sent.append(what))
    told = inform(USR1, Told([(150, 3)]))
    assert told == {(150, 3), (201, 77), (203, 79)}
    assert sent == [(201, USR1), (203, USR1)]
    assert inform(USR1, told) == told
    found[2] = Process(203, 9, 7, "S", 95, 0)
    assert inform(USR1, told) == told | {(203, 95)}
    assert sent[2:] == [(203, USR1)]


def _end(shell: subprocess.Popen[bytes]) -> None:
    """Kill a shell, and what it has started."""
    for process in descendants(shell.pid):
        send(process.pid, signal.SIGKILL)
    shell.kill()
