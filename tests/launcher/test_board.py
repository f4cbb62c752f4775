"""What the person sees: the table of each phase, plain lines, JSON lines, and the last line."""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console, RenderableType

from launcher.show.board import JsonBoard, LiveBoard, PlainBoard, make_board
from launcher.show.epochs import after_starts, used_text
from launcher.show.last_line import last_line
from launcher.show.living import Outputs, living_words
from launcher.show.slot_table import draw
from launcher.state.last_words import RankWords
from launcher.state.state_dir import StateDir
from launcher.ui.told import LaunchFacts, Told
from rendezvous.feature import Feature
from rendezvous.run.events import Event
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.run import (
    EpochEnd,
    EventLine,
    NodeState,
    Phase,
    Result,
    RunStatus,
    SlotState,
    SlotStatus,
    Standing,
)
from tests.launcher.command import launched
from tests.support import terminals

GATHERING = "waiting for 2 of 4 nodes, 50 s left: slot 2 queued 4 min (Resources); slot 3 submitted"


def slot(number: int, **values: Any) -> SlotStatus:
    detail = f"pid {1000 + number}"
    defaults: dict[str, Any] = {"generation": 1, "wanted_generation": 1, "state": SlotState.RUNNING}
    return SlotStatus(slot=number, **(defaults | {"detail": detail} | values))


def node(number: int, state: NodeState, **values: Any) -> SlotStatus:
    defaults = {"hostname": f"node-{number}", "address": f"10.0.0.{number + 1}"}
    return slot(number, **(defaults | {"node_state": state, "nproc_per_node": 8} | values))


def run_status(*slots: SlotStatus, **values: Any) -> RunStatus:
    defaults: dict[str, Any] = {
        "run": "llama",
        "launch_id": "k7f2a9c1xy",
        "version": 1,
        "phase": Phase.GATHERING,
        "epoch": 0,
        "reason": GATHERING,
        "topic": 1,
        "min_nodes": 4,
        "max_nodes": 4,
        "elapsed_seconds": 3.21,
        "slots": list(slots),
    }
    return RunStatus(**(defaults | values))


def event(reason: str, kind: str = "joined", *, usual: bool = False) -> EventLine:
    return EventLine(7, 1.25, kind, reason, Phase.RUNNING, 1, usual=usual)


def printed(what: RenderableType, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    with console.capture() as capture:
        console.print(what)
    return lines(capture.get())


def shown(status: RunStatus, width: int = 100) -> str:
    return printed(draw(status), width)


def lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def expected(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


FULL = "the journal could not be written"
UGLY = [
    node(0, NodeState.LOST, hostname="[red]x[/red]", problem="[/] [link=x]\\"),
    slot(1, detail="\x1b[2J\x07:bug:\r\nb"),
]
FINISHED = [
    node(0, NodeState.LEFT, node=0, exit_code=0),
    node(1, NodeState.EXITED, node=1, exit_code=137),
    node(
        2,
        NodeState.LOST,
        node=2,
        cause="preempted",
        problem="silent for 15.0 s",
        nproc_per_node=1,
    ),
    slot(3, state=SlotState.FAILED, detail="", problem="no such queue"),
]


@pytest.mark.parametrize(
    ("status", "table"),
    [
        (
            run_status(
                node(0, NodeState.JOINED, hostname="gpu-a", address="fd00::1", detail=""),
                slot(1),
                slot(2, generation=2, state=SlotState.QUEUED, state_seconds=240.0, detail="Quota"),
                slot(3, generation=0, state=SlotState.NONE, detail=""),
            ),
            f"""
            run llama   gathering   3.2 s
            slot  worker run                          host   address  procs  state
            0     running                             gpu-a  fd00::1  8      joined
            1     running: pid 1001                                          not joined yet
            2     queued 4 min (generation 2): Quota                         not joined yet
            3     -                                                          not joined yet
            {GATHERING}
            """,
        ),
        (
            run_status(
                *FINISHED, phase=Phase.FINISHED, elapsed_seconds=3723.96, trouble=FULL, run="[b]"
            ),
            f"""
            run [b]   finished   3724.0 s
            slot  node  worker run          host    address   procs  state
            0     0     running             node-0  10.0.0.1  8      left, exit code 0
            1     1     running             node-1  10.0.0.2  8      ended, exit code 137
            2     2     running, preempted  node-2  10.0.0.3  1      lost: silent for 15.0 s
            3           failed                                       no such queue
            {GATHERING}
            {FULL}
            """,
        ),
        (
            run_status(*UGLY, reason="[bold]\x1b]0;title\x07", trouble="[bold]\x1b]0;title\x07"),
            """
            run llama   gathering   3.2 s
            slot  worker run               host          address   procs  state
            0     running                  [red]x[/red]  10.0.0.1  8      lost: [/] [link=x]\\
            1     running: ?[2J?:bug:?; b                                 not joined yet
            [bold]?]0;title?
            """,
        ),
    ],
    ids=["gathering", "finished", "ugly"],
)
def test_the_table_shows_each_slot_and_what_is_waited_for(status: RunStatus, table: str) -> None:
    assert shown(status) == expected(table)


@pytest.mark.parametrize(("certain", "mark"), [(True, "first cause"), (False, "failed first")])
def test_the_table_of_a_failed_run_begins_with_the_first_cause(certain: bool, mark: str) -> None:
    """Also where not all fit; who was stopped by rdzv is not told as if it had failed."""
    stopped = {"exit_code": 143, "stopped": True}
    slots = [node(n, NodeState.EXITED, node=n, **stopped) for n in range(40)]
    slots[7] = node(7, NodeState.LEFT, node=7, exit_code=1, problem="out of memory")
    slots[9] = node(9, NodeState.EXITED, node=9, exit_code=1)
    result = Result(status="failed", exit_code=1, message="node 7 failed", slot=7, certain=certain)
    status = run_status(*slots, phase=Phase.FINISHED, result=result)
    table = printed(draw(status, most_rows=3), 120).splitlines()
    assert [line.split("  ")[0] for line in table[2:5]] == ["7", "0", "9"]
    assert table[2].endswith(f"  {mark}: left, exit code 1: out of memory")
    assert table[3].endswith("  ended, stopped by rdzv, exit code 143")
    assert table[4].endswith("  ended, exit code 1")
    console = Console(width=120, file=io.StringIO(), force_terminal=True, _environ={})
    with console.capture() as capture:
        console.print(draw(status, most_rows=3))
    [first, grey, red] = capture.get().splitlines()[2:5]
    assert "\x1b[1;31mfirst cause" in first or "\x1b[1;31mfailed first" in first
    assert "\x1b[2mended" in grey
    assert "\x1b[31mended" in red


def test_why_a_submission_failed_is_once_in_its_row() -> None:
    failed = slot(
        1, state=SlotState.FAILED, detail="no such queue", problem="failed: no such queue"
    )
    tried = slot(2, state=SlotState.SUBMITTING, detail="the API answered 500")
    table = shown(run_status(failed, tried, reason="waiting"), 160)
    assert table.count("no such queue") == 1
    assert table.count("the API answered 500") == 1


def test_where_the_width_is_short_words_wrap_and_addresses_stay_whole() -> None:
    status = run_status(
        node(0, NodeState.LOST, address="2001:db8::9abc:def0:1234:5678", problem="it was closed"),
        reason="A sentence of more words than fit into one line of a terminal as narrow as this.",
    )
    assert shown(status, width=80) == expected("""
        run llama   gathering   3.2 s
        slot  worker run  host    address                        procs  state
        0     running     node-0  2001:db8::9abc:def0:1234:5678  8      lost: it was
                                                                        closed
        A sentence of more words than fit into one line of a terminal as narrow as this.
    """)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_shows_every_slots_state_however_long_its_names_are(width: int) -> None:
    name, address = "gpu-node-{}.cluster.example.com", "fd00:1234:5678:9abc::12"
    table = shown(
        run_status(
            node(0, NodeState.JOINED, hostname=name.format(17), address=address),
            node(1, NodeState.LOST, hostname=name.format(18), address=address),
            slot(2, state=SlotState.QUEUED),
        ),
        width,
    )
    assert max(map(len, table.splitlines())) <= width
    for found in ("  gpu-node-17.cl", "  joined\n", "  gpu-node-18.cl", "  lost\n", "not joined"):
        assert found in table


@pytest.mark.parametrize(
    ("term", "board"), [("xterm", LiveBoard), ("dumb", PlainBoard), ("unknown", PlainBoard)]
)
def test_only_a_terminal_that_can_redraw_gets_the_table(
    term: str, board: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", term)
    assert type(make_board(4)) is board


def test_where_not_all_fit_those_that_are_waited_for_are_shown_in_order_of_slot() -> None:
    table = shown(run_status(*(slot(number) for number in range(100)))).splitlines()
    assert [line.split()[0] for line in table[2:34]] == [str(number) for number in range(32)]
    assert table[34:] == ["and 68 more", GATHERING]
    here = [node(number, NodeState.ARMED) for number in range(95)]
    here[40], here[50] = node(40, NodeState.VERIFIED), node(50, NodeState.LOST)
    late = [slot(number) for number in range(95, 100)]
    table = shown(run_status(*here, *late)).splitlines()
    numbers = [int(line.split()[0]) for line in table[2:34]]
    assert numbers == [*range(25), 40, 50, 95, 96, 97, 98, 99]


# ---- live ---------------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A terminal, with the board on it and its clock."""

    def __init__(
        self, height: int = 40, width: int = 120, nodes: int = 4, outputs: Outputs | None = None
    ) -> None:
        super().__init__()
        console = Console(
            file=self,
            width=width,
            height=height,
            force_terminal=True,
            color_system=None,
            _environ={},
        )
        self.now = 100.0
        self.board = LiveBoard(nodes, outputs, console=console, clock=lambda: self.now)

    def left(self) -> str:
        """What stands on it from the last table on."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.getvalue())
        return lines(text[text.rindex("run llama") :])

    def shown(self) -> str:
        """All that a terminal shows of it."""
        screen = terminals.Screen(120).write(self.getvalue())
        return "\n".join(line.rstrip() for line in screen.lines()).strip("\n")


@pytest.mark.parametrize("width", [60, 80])
def test_what_a_person_copies_is_never_broken_by_the_live_board(width: int) -> None:
    command = f"sh /home/someone/{'a-long-name/' * 9}slot-1.sh"
    screen = Screen(width=width)
    screen.board.say(f"start slot 1 on its machine with: {command}")
    screen.board.status(run_status(slot(1)))
    screen.board.say(f"start slot 2 on its machine with: {command}")
    screen.board.status(run_status(slot(1), slot(2)))
    assert screen.getvalue().count(f"with: {command}\n") == 2


def join(number: int, seconds: float, *, of: int = 4) -> EventLine:
    """The event of an ordinary join, so many seconds after the run was created."""
    reason = f"h{number} joined ({number + 1} of {of}), from 10.0.0.{number + 1}"
    return EventLine(number, seconds, "joined", reason, Phase.GATHERING, 0, number, usual=True)


AGREED = "all 4 nodes reach each other over eth0; starting torchrun"
GO = EventLine(9, 1.5, "acked", AGREED, Phase.RUNNING, 1, 3)


def test_a_start_is_a_line_that_is_rewritten_and_the_terminal_then_the_programs() -> None:
    screen = Screen()
    board = screen.board
    board.status(run_status(slot(0)))
    for number in range(4):
        board.event(join(number, 0.1 * number))
        board.status(run_status(slot(0)))
    board.event(event("slot 0 (h0) verified its peers", "probed", usual=True))
    board.event(GO)
    running = run_status(node(0, NodeState.RUNNING, node=0), phase=Phase.RUNNING, reason="running")
    board.status(running)
    board.status(running)
    board.event(event("node 0: NCCL uses IB", "progressed", usual=True))
    board.event(event("node 0: NCCL uses sockets", "progressed"))
    board.event(event("it was cancelled, as was said", "cancelled"), said=True)
    board.say("a worker run could not be cancelled: [why]\nhint")
    board.close()
    assert screen.shown() == expected("""
        rdzv: 4 of 4 nodes have joined
        rdzv: all 4 nodes reach each other over eth0; starting torchrun
        rdzv: node 0: NCCL uses sockets
        rdzv: a worker run could not be cancelled: [why]; hint
    """)


def test_the_go_is_told_below_who_has_joined_also_where_its_status_comes_first() -> None:
    screen = Screen(nodes=2)
    screen.board.status(run_status(slot(0)))
    screen.board.event(join(0, 0.1))
    screen.board.status(run_status(node(0, NodeState.RUNNING, node=0), phase=Phase.RUNNING))
    screen.board.event(join(1, 0.2))
    screen.board.event(GO)
    assert screen.shown().splitlines()[-1] == f"rdzv: {GO.reason}"


def test_each_step_of_each_node_is_a_line_for_who_wants_it() -> None:
    plain = Plain(nodes=2, verbose=True)
    for line in (join(0, 0.1, of=2), join(1, 0.2, of=2), GO):
        plain.board.event(line)
    assert plain.getvalue() == (
        "rdzv     0.1 s  h0 joined (1 of 2), from 10.0.0.1\n"
        "rdzv     0.2 s  h1 joined (2 of 2), from 10.0.0.2\n"
        f"rdzv     1.5 s  {GO.reason}\n"
    )


def test_a_start_that_takes_long_is_a_table() -> None:
    screen = Screen()
    screen.board.status(run_status(slot(0), reason="waiting"))
    assert screen.shown() == "rdzv: 0 of 4 nodes have joined"
    screen.now += 6.0
    screen.board.status(run_status(slot(0), reason="waiting"))
    assert screen.left().splitlines()[-2:] == [
        "0     running: pid 1000                        not joined yet",
        "waiting",
    ]
    screen.board.event(replace(GO, reason="go"))
    assert screen.shown().splitlines()[-2:] == ["rdzv: 0 of 4 nodes have joined", "rdzv: go"]


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.FINISHED])
def test_98_a_live_board_that_ends_before_the_go_leaves_the_last_table(phase: Phase) -> None:
    screen = Screen()
    screen.board.status(run_status(slot(0), reason="one"))
    screen.now += 6.0
    screen.board.status(run_status(slot(0), reason="two", phase=phase))
    if phase is Phase.GATHERING:
        screen.board.close()
    last = screen.left().splitlines()[-1]
    if phase is Phase.GATHERING:
        assert last == "two"
    else:  # the last line of the launch says how it ended
        assert last.split() == ["0", "running:", "pid", "1000", "not", "joined", "yet"]
    drawn = screen.left()
    if phase is Phase.FINISHED:
        screen.board.status(run_status(slot(0), reason="two", phase=phase))
        screen.board.event(join(0, 7.0))
    screen.board.close()
    assert screen.left() == drawn


def test_a_live_board_shows_no_more_rows_than_the_terminal_has() -> None:
    screen = Screen(height=10)
    screen.board.status(run_status())
    screen.now += 6.0
    screen.board.status(run_status(*(slot(number) for number in range(100)), reason="waiting"))
    screen.board.close()
    table = screen.left().splitlines()
    assert (len(table), table[-2:]) == (10, ["and 94 more", "waiting"])


def kinds_of_events() -> list[str]:
    """Every kind that a journal may hold, whoever adds one."""
    union, *_ = get_args(Event)  # Annotated
    return [kind.model_fields["kind"].default for kind in get_args(union)]


@pytest.mark.parametrize("kind", kinds_of_events())
def test_every_kind_of_event_that_is_not_usual_is_shown_on_each_board(kind: str) -> None:
    """And none that is."""
    forming, screen, plain, stream = Screen(), Screen(), Plain(), io.StringIO()
    forming.board.status(run_status(slot(0)))
    screen.board.status(run_status(node(0, NodeState.RUNNING, node=0), phase=Phase.RUNNING))
    json_board = JsonBoard(stream)
    page = Told(LaunchFacts("llama"), 0, "")
    for number, usual in ((11, False), (12, True)):
        line = replace(event(f"seen {number}", kind, usual=usual), number=number)
        for board in (forming.board, screen.board, plain.board, json_board, page):
            board.event(line)
    assert re.findall(r"rdzv: seen \d+", forming.getvalue()) == ["rdzv: seen 11"]
    assert re.findall(r"seen \d+", screen.getvalue()) == ["seen 11"]
    assert re.findall(r"seen \d+", plain.getvalue()) == ["seen 11"]
    assert re.findall(r"seen \d+", stream.getvalue()) == ["seen 11", "seen 12"]
    assert [one["reason"] for one in page.state()["events"]] == ["seen 11", "seen 12"]


def test_what_is_said_while_programs_run_leaves_nothing_of_a_progress_bar() -> None:
    """Its newest state may stand where the line is written, with the cursor in front of it."""
    board = Screen()
    board.board.status(run_status(node(0, NodeState.RUNNING), phase=Phase.RUNNING))
    before = board.getvalue()
    board.board.event(event("node 0 was lost", "lost"))
    said = board.getvalue().removeprefix(before)
    screen = terminals.Screen(80).write("[0]  45%|##########          | 45/100\r" + said)
    assert screen.lines() == ["rdzv: node 0 was lost", ""]


# ---- while programs run -------------------------------------------------------------------------


RUNNING = {"phase": Phase.RUNNING, "reason": "running", "running_seconds": 12.0}
ALL_NODES = [node(number, NodeState.RUNNING, node=number) for number in range(4)]


@pytest.mark.parametrize(
    ("more", "silent", "words"),
    [
        ({"importing": [0, 1, 2, 3]}, math.inf, "importing torch, 12 s"),
        ({"importing": [3]}, math.inf, "importing torch, 12 s (node 3 last)"),
        ({"importing": [1, 3]}, 4.0, "importing torch, 12 s (nodes 1, 3 last)"),
        ({}, math.inf, "running 12 s, no output yet"),
        ({"running_seconds": 250.0}, 2.4, "running 4 min 10 s, output 2 s ago"),
        ({"running_seconds": 250.0}, 119.0, "running 4 min 10 s, output 119 s ago"),
        ({"running_seconds": 250.0}, 120.0, "quiet for 2 min: rdzv where llama"),
    ],
)
def test_the_living_line(
    more: dict[str, Any], silent: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_features = (Feature("without"), Feature("with", locates="rdzv where {run}"))
    monkeypatch.setattr("rendezvous.feature.declared", lambda: of_features)
    assert living_words(run_status(*ALL_NODES, **(RUNNING | more)), silent) == words


def test_the_living_line_names_no_command_where_none_shows_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rendezvous.feature.declared", tuple)
    assert living_words(run_status(*ALL_NODES, **RUNNING), 120.0) == "quiet for 2 min"


def test_the_living_line_is_drawn_while_nothing_is_printed(tmp_path: Path) -> None:
    """Whoever prints next erases it, and an unfinished line of a program stays."""
    screen = Screen(outputs=Outputs(tmp_path))
    log = tmp_path / "node-0.log"

    def drawn(*, later: float = 2.0) -> str:
        screen.now += later
        before = len(screen.getvalue())
        screen.board.status(run_status(*ALL_NODES, **RUNNING))
        return screen.getvalue()[before:]

    assert "running" not in drawn()  # no log tells
    log.write_text("")
    (tmp_path / "registry.log").write_text("not of a program")
    assert drawn() == "\r\x1b[K\x1b[2mrdzv: running 12 s, no output yet\x1b[22m\r"
    log.write_text("epoch 1\n")
    assert drawn() == ""
    assert "output 3 s ago" in drawn(later=3.0)
    log.write_text("epoch 1\nsaving ...")
    assert drawn() == drawn(later=60.0) == ""
    log.write_text("epoch 1\nsaving ... done\n")
    assert drawn() == ""
    assert "output 5 s ago" in drawn(later=5.0)


def test_what_a_launcher_prints_is_no_output_of_a_rank(tmp_path: Path) -> None:
    """It is in its own log first, and folded where a person looks."""
    node, launcher = tmp_path / "node-0.log", tmp_path / "launcher-0.log"
    outputs = Outputs(tmp_path)
    node.write_text("")
    assert outputs.silent_seconds(0.0) == math.inf
    launcher.write_text("banner\n")
    assert outputs.silent_seconds(1.0) == math.inf
    node.write_text("banner\n")
    assert outputs.silent_seconds(2.0) == math.inf
    node.write_text("banner\nepoch 1\n")
    assert outputs.silent_seconds(3.0) == 0.0
    for log in (launcher, node):
        with log.open("a") as file:
            file.write("it is stopped\n")
        assert outputs.silent_seconds(9.0) == 6.0
    node.write_text("epoch 2\n")  # begun anew
    assert outputs.silent_seconds(10.0) == 0.0


def test_a_line_of_a_program_takes_the_place_of_the_living_line(tmp_path: Path) -> None:
    screen = Screen(outputs=Outputs(tmp_path))
    (tmp_path / "node-0.log").write_text("")
    screen.board.status(run_status(*ALL_NODES, **RUNNING))
    screen.board.status(run_status(*ALL_NODES, **RUNNING))
    screen.write("\x1b[Kepoch 1\n")  # as a node writes it there
    screen.board.status(run_status(*ALL_NODES, **RUNNING))
    screen.board.close()
    assert screen.shown().splitlines() == ["rdzv: 0 of 4 nodes have joined", "epoch 1"]


# ---- plain --------------------------------------------------------------------------------------


class Plain(io.StringIO):
    """A plain board's output, with its clock."""

    def __init__(self, nodes: int = 4, *, verbose: bool = False) -> None:
        super().__init__()
        self.now = 100.0
        self.board = PlainBoard(self, nodes, verbose=verbose, clock=lambda: self.now)

    def begun(self) -> Plain:
        """It has shown something that was not usual."""
        self.board.event(event("slot 0 could not be submitted yet", "slot"))
        self.now += 1.5
        return self

    def status(self, reason: str, seconds: float, later: float, **more: Any) -> None:
        self.board.status(run_status(reason=reason, elapsed_seconds=seconds, **more))
        self.now += later

    def said_at(self) -> list[str]:
        return [line.split()[1] for line in self.getvalue().splitlines()]


def test_the_plain_board_says_what_happened_and_then_what_is_waited_for() -> None:
    plain = Plain()
    plain.board.say("resuming launch k7f2a9c1xy")
    plain.board.event(event("slot 0 (node-0) joined"))
    plain.status(GATHERING, 3.21, 0.0)  # something was said a moment ago
    plain.board.event(event("slot 0 (node-0) verified", usual=True))
    plain.board.event(event("it was cancelled, as was said", "cancelled"), said=True)
    plain.now += 1.5
    for seconds in range(50, 40, -1):
        plain.status(GATHERING.replace("50", str(seconds)), 3.21, 1.5)
    plain.status("waiting for slot 3, 9 s left", 20.0, 1.5, topic=2)
    result = Result(status="ok", exit_code=0, message="done")
    plain.status("done", 21.0, 0.0, phase=Phase.FINISHED, result=result)
    plain.board.event(event("slot 0: \x1b[2J\r\nrdzv: run 'llama' ok"))
    plain.board.say("one\x9b2J\ntwo\u202e")
    plain.board.close()
    assert plain.getvalue() == (
        "rdzv: resuming launch k7f2a9c1xy\n"
        "rdzv     1.2 s  slot 0 (node-0) joined\n"
        f"rdzv     3.2 s  {GATHERING}\n"
        "rdzv    20.0 s  waiting for slot 3, 9 s left\n"
        "rdzv     1.2 s  slot 0: ?[2J?; rdzv: run 'llama' ok\nrdzv: one?2J; two?\n"
    )


def test_who_has_joined_is_a_line_at_each_quarter_and_seldom() -> None:
    plain = Plain(nodes=64)
    for number in range(64):
        plain.board.event(join(number, 0.25 * number, of=64))
    assert [line.split("  ")[-1] for line in plain.getvalue().splitlines()] == [
        "21 of 64 nodes have joined",
        "41 of 64 nodes have joined",
        "61 of 64 nodes have joined",
        "64 of 64 nodes have joined",
    ]


def test_a_start_without_all_nodes_says_how_many_have_joined() -> None:
    plain = Plain()
    for line in (join(0, 0.1), join(1, 0.2), replace(GO, reason="both nodes are ready")):
        plain.board.event(line)
    assert plain.getvalue() == (
        "rdzv     1.5 s  2 of 4 nodes have joined\nrdzv     1.5 s  both nodes are ready\n"
    )


def test_what_fails_after_the_first_failure_is_said_once_with_its_number() -> None:
    plain, screen = Plain(), Screen()
    screen.board.status(run_status(*ALL_NODES, **RUNNING))
    for board in (plain.board, screen.board):
        for number in range(64):
            board.event(event(f"node {number} (h{number}) failed: rank {number} ended", "exited"))
        board.event(replace(event("node 3 (h3) failed: rank 3 ended", "exited"), epoch=2))
        board.event(replace(event("node 5 (h5) failed: rank 5 ended", "exited"), epoch=2))
        board.close()
    said = [
        "node 0 (h0) failed: rank 0 ended",
        "63 more nodes failed after it: node 1 (h1), node 2 (h2), node 3 (h3) and 60 more",
        "node 3 (h3) failed: rank 3 ended",
        "node 5 (h5) failed: rank 5 ended",
    ]
    assert [line.partition(" s  ")[2] for line in plain.getvalue().splitlines()] == said
    assert screen.shown().splitlines()[1:] == [f"rdzv: {words}" for words in said]


def test_what_several_slots_fail_of_alike_is_said_once() -> None:
    plain = Plain()
    for number in (0, 2, 1, 3):
        why = "no such queue" if number < 3 else "the queue is full"
        line = event(f"slot {number} failed before the start: {why}", "slot")
        plain.board.event(replace(line, slot=number))
        plain.board.event(replace(join(number, 0.1), kind="slot"))  # which is not shown
    plain.board.close()
    assert [line.partition(" s  ")[2] for line in plain.getvalue().splitlines()] == [
        "slot 0 failed before the start: no such queue",
        "the same for slots 1-2",
        "slot 3 failed before the start: the queue is full",
    ]


def test_what_several_nodes_wait_for_alike_is_said_once() -> None:
    plain = Plain()
    for number, words in ((1, "waits for h"), (2, "waits for h"), (3, "waits for h"), (1, "is so")):
        line = event(f"node {number} (h{number}): {words}", "progressed")
        plain.board.event(replace(line, slot=number, progress=words))
    plain.board.close()
    assert [line.partition(" s  ")[2] for line in plain.getvalue().splitlines()] == [
        "node 1 (h1): waits for h",
        "the same on node 2 (h2), node 3 (h3)",
        "node 1 (h1): is so",
    ]


def test_what_is_held_of_two_kinds_is_said_of_each_and_of_each_epoch_anew() -> None:
    plain = Plain()

    def says(number: int, epoch: int = 1) -> None:
        line = event(f"node {number} (h{number}): waits for h", "progressed")
        plain.board.event(replace(line, slot=number, progress="waits for h", epoch=epoch))

    def fails(number: int) -> None:
        plain.board.event(replace(event(f"node {number} failed: it ended", "exited"), epoch=1))

    for number in range(1, 4):
        says(number)
    for number in range(1, 4):
        fails(number)
    says(4)
    says(1, epoch=2)
    says(2, epoch=2)
    plain.board.close()
    assert [line.partition(" s  ")[2] for line in plain.getvalue().splitlines()] == [
        "node 1 (h1): waits for h",
        "the same on node 2 (h2), node 3 (h3)",
        "node 1 failed: it ended",
        "2 more nodes failed after it: node 2, node 3",
        "the same on node 4 (h4)",
        "node 1 (h1): waits for h",
        "the same on node 2 (h2)",
    ]


def test_of_an_epoch_that_another_follows_its_end_alone_is_told() -> None:
    """Neither who failed nor a bystander: the launcher says the first cause, and what follows."""
    end = "epoch 1 ended after 3 h: node 1 (h1) failed; restart 1 of 1 at once"
    status = run_status(*ALL_NODES, phase=Phase.ARMING, ended=[epoch(1)])
    for is_status_first in (False, True):
        plain, screen = Plain(), Screen()
        screen.board.status(run_status(*ALL_NODES, **RUNNING))
        for board in (plain.board, screen.board):
            lines = [
                event("node 1 (h1) failed: rank 1 ended", "exited"),
                event("node 2 (h2) failed: rank 2 ended", "exited"),
                event("node 3 (h3) was stopped; restart 1 of 1 at once", "exited"),
            ]
            lines = [replace(line, epoch=1, phase=Phase.RUNNING) for line in lines]
            lines[2] = replace(lines[2], epoch=2, phase=Phase.ARMING)
            for line in lines[: 2 if is_status_first else 3]:
                board.event(line)
            board.status(status)
            board.say(end)
            for line in lines[2 if is_status_first else 3 :]:
                board.event(line)
            board.event(replace(event("node 4 (h4) failed: late", "exited"), phase=Phase.ARMING))
            board.close()
        said = [f"rdzv: {end}", "rdzv     1.2 s  node 4 (h4) failed: late"]
        assert plain.getvalue().splitlines() == said
        assert screen.shown().splitlines()[1:] == [said[0], "rdzv: node 4 (h4) failed: late"]


def test_a_failure_that_is_known_is_not_held_either() -> None:
    plain = Plain()
    for number in range(3):
        line = event(f"node {number} (h{number}) failed: it was told to end", "exited")
        plain.board.event(line, said=True)
    plain.board.close()
    assert plain.getvalue() == ""


def test_a_cancelled_run_has_nothing_red() -> None:
    """What an agent ended with is no failure then."""
    slots = [node(0, NodeState.LEFT, exit_code=143), node(1, NodeState.LOST, problem="gone")]
    result = Result(status="cancelled", exit_code=84, message="run 'llama' was cancelled")
    for how, colours in ((result, {"2"}), (None, {"31"})):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, color_system="standard", width=100)
        console.print(draw(run_status(*slots, phase=Phase.FINISHED, result=how)))
        assert set(re.findall(r"\x1b\[(2|31|1;31)m", stream.getvalue())) == colours


def test_failures_that_are_held_are_said_after_a_moment() -> None:
    plain = Plain()
    for number in range(3):
        plain.board.event(event(f"node {number} (h{number}) failed: it ended", "exited"))
    plain.status("the others are being stopped", 2.0, 1.5, phase=Phase.RUNNING)
    assert "2 more" not in plain.getvalue()
    plain.status("the others are being stopped", 3.5, 0.0, phase=Phase.RUNNING)
    assert "2 more nodes failed after it: node 1 (h1), node 2 (h2)\n" in plain.getvalue()


def test_what_is_waited_for_is_said_where_a_start_takes_a_moment() -> None:
    plain = Plain()
    plain.status("waiting", 0.1, 1.5)
    plain.board.event(replace(event("run 'llama' was created", "created"), usual=True))
    for seconds in range(8):
        plain.status("waiting", 1.6 + seconds, 1.0)
    assert plain.said_at() == ["5.6"]


def test_97_it_says_so_after_a_second_of_silence_and_then_after_a_minute_to_the_second() -> None:
    plain = Plain().begun()
    plain.now -= 0.5  # it was silent for as long as a second
    for number in range(1_500):
        plain.status("waiting", 1.0 + number / 8, 0.125)
    assert plain.said_at()[1:] == ["1.1", "61.1", "181.1"]


def test_while_programs_run_boards_say_only_who_is_late_to_end() -> None:
    plain, screen = Plain().begun(), Screen()
    for minute in range(10):
        reason = f"1 of 2 ended; waiting for node 1 for {minute} min"
        more = {"phase": Phase.RUNNING, "ending": minute >= 2}
        plain.status(reason, 60.0 * minute, 60.0, **more)
        screen.board.status(run_status(reason=reason, **more))
        screen.now += 60.0
    assert plain.said_at()[1:] == ["120.0", "180.0", "300.0", "540.0"]
    assert "waiting for node 1 for 2 min" in plain.getvalue()
    assert screen.getvalue().count("rdzv: 1 of 2 ended; waiting for node 1") == 4


def test_between_two_epochs_boards_say_how_long_that_takes_and_who_is_late() -> None:
    plain, screen = Plain().begun(), Screen()
    screen.board.status(run_status(phase=Phase.RUNNING, reason="running"))
    for phase, left in ((Phase.RESTARTING, 16.0), (Phase.RESTARTING, 14.0), (Phase.ARMING, 60.0)):
        more: dict[str, Any] = {"phase": phase, "remaining_seconds": left, "topic": len(phase)}
        plain.status("node 1 failed; waiting", 60.0 - left, 2.0, **more)
        screen.now += 2.0
        screen.board.status(run_status(reason="node 1 failed; waiting", **more))
    screen.board.event(event("restart requested: new data", "restart_asked"))
    waits = ["restarting: 16 s left", "node 1 failed; waiting"]
    assert screen.shown().splitlines()[-3:] == [
        *(f"rdzv: {words}" for words in waits),
        "rdzv: restart requested: new data",
    ]
    assert [line.partition(" s  ")[2] for line in plain.getvalue().splitlines()][-2:] == waits


@pytest.mark.parametrize(
    ("lost", "replaced", "words"),
    [
        ([], None, ""),
        ([[]], None, "after 1 restart"),
        ([[2]], 1, "after 1 replacement"),
        ([[], [2], [1, 3]], 3, "after 1 restart and 3 replacements"),
        ([[2], [1]], None, "after 2 lost nodes"),
        ([[], [2], [1, 3]], 2, "after 1 restart, 2 replacements and 1 lost node"),
        ([[]] * 31 + [[1]], 40, "after at least 31 restarts and 40 replacements"),
    ],
)
def test_what_the_end_came_after(lost: list[list[int]], replaced: int | None, words: str) -> None:
    ends = [EpochEnd(epoch=n, message="", replaced=slots) for n, slots in enumerate(lost, 1)]
    assert after_starts(ends, replaced) == words


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"on_node_loss": "replace", "max_replacements": 3}, "0 of 3 replacements used"),
        (
            {"max_restarts": 2, "replacements": 2, "resubmitted": 1, "max_replacements": 1},
            "0 of 2 restarts used, 1 of 1 replacement used, 2 nodes replaced",
        ),
        ({"on_node_loss": "shrink", "replacements": 1}, "1 node replaced"),
        ({"on_node_loss": "shrink"}, ""),
        ({"max_restarts": 1}, "0 of 1 restart used"),
    ],
)
def test_what_is_used_of_restarts_and_replacements(more: dict[str, Any], words: str) -> None:
    assert used_text(run_status(phase=Phase.RUNNING, **more)) == words


def test_a_standby_is_a_state_of_its_own() -> None:
    status = run_status(node(2, NodeState.STANDBY, hostname="n2"), phase=Phase.RUNNING)
    assert shown(status).splitlines()[2].split()[-1] == "standby"


# ---- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("everyone_left", [True, False])
def test_the_json_board_writes_one_object_a_line_and_the_result_last_and_once(
    everyone_left: bool,
) -> None:
    stream = io.StringIO()
    board = JsonBoard(stream)
    board.begin("llama", Path("/state/llama"))
    result = Result(status="failed", exit_code=3, message="node 1 failed", slot=1, tail=["\x1b"])
    board.status(run_status())
    board.event(event("slot 0\njoined"))
    for _ in range(2):
        board.status(run_status(result=result, everyone_left=everyone_left))
    board.say("a worker run could not be cancelled")
    board.close()
    board.close()
    joined = {"number": 7, "at_seconds": 1.25, "kind": "joined", "reason": "slot 0\njoined"}
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"kind": "launch", "run": "llama", "folder": "/state/llama"},
        joined
        | {
            "phase": "running",
            "epoch": 1,
            "slot": None,
            "usual": False,
            "state": None,
            "progress": "",
        },
        {"kind": "launcher", "reason": "a worker run could not be cancelled"},
        {"kind": "result", **result.model_dump()},
    ]
    assert stream.getvalue().isascii()
    assert "\x1b" not in stream.getvalue()


def test_99_where_the_registry_has_told_no_result_none_is_written() -> None:
    stream = io.StringIO()
    board = JsonBoard(stream)
    board.status(run_status())
    board.say("the registry ended 5 times within 30 s")
    board.close()
    assert [json.loads(line)["kind"] for line in stream.getvalue().splitlines()] == ["launcher"]


# ---- the last line -----------------------------------------------------------------------------

PLACE = RegistryPlace(("10.0.0.1", "fd00::1"), 29_600, "certificate", b"\x30\x82der")
CODE = "exit code 3 (the program's)"


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return launched(tmp_path, PLACE)


def said(state: StateDir, status: str = "failed", **more: Any) -> str:
    values: dict[str, Any] = {"status": status, "exit_code": 3, "message": "node 1 failed"}
    values |= {"exit_code_of": "program"} | more
    return last_line("llama", Result(**values), state)


def test_96_a_good_end_is_a_line() -> None:
    end = said(StateDir(Path("nowhere"), "llama"), "ok", message="all 2 ended", log="/n/node-1.log")
    assert end == "rdzv: run 'llama' ok: all 2 ended"


def epoch(number: int, **more: Any) -> EpochEnd:
    words = f"node {number} (n{number}) failed"
    return EpochEnd(epoch=number, ran_seconds=11_000.0 * (number % 2), message=words, **more)


EPOCHS = [
    "epoch 1 ended after 3 h: node 1 (n1) failed",
    "epoch 2 ended within 10 s: node 2 (n2) failed",
    "epoch 3 ended after 3 h: node 3 (n3) failed",
]


def test_after_restarts_each_epochs_end_is_told(state: StateDir) -> None:
    ends = [epoch(1, then="restart 1 of 3 at once"), epoch(2)]
    assert said(state, "ok", message="all 2 ended", epochs=ends) == (
        f"rdzv: run 'llama' ok after 2 restarts: all 2 ended; {EPOCHS[0]}; {EPOCHS[1]}"
    )
    assert said(state, epochs=ends[:1], hint="fix it", log="/l") == (
        f"rdzv: run 'llama' failed after 1 restart: node 1 failed; fix it; {EPOCHS[0]}; {CODE}; "
        "log: /l"
    )
    lost = [epoch(1), epoch(2, replaced=[2]), epoch(3, replaced=[1, 3])]
    assert "ok after 1 restart and 3 replacements: " in said(
        state, "ok", epochs=lost, replacements=3
    )
    cancelled = Result(status="cancelled", exit_code=84, message="cancelled", epochs=ends[:1])
    words = f"rdzv: cancelled (exit code 84); {EPOCHS[0]}"
    assert last_line("llama", cancelled, state) == words
    found = Standing(words="nothing had moved: rank 2 is in load", stacks=["rank 2: load (d.py:1)"])
    cancelled = cancelled.model_copy(update={"finding": found, "epochs": []})
    words = "rdzv: cancelled (exit code 84); nothing had moved: rank 2 is in load"
    assert last_line("llama", cancelled, state) == f"{words}; more: rdzv status llama"
    assert last_line("llama", cancelled, state, whole=True) == f"{words}; rank 2: load (d.py:1)"


def test_of_many_epochs_the_newest_three_are_told_each_in_few_words(state: StateDir) -> None:
    ends = [epoch(number) for number in range(-1, 4)]
    assert said(state, "ok", message="all 2 ended", epochs=ends) == (
        f"rdzv: run 'llama' ok after 5 restarts: all 2 ended; {'; '.join(EPOCHS)}; "
        "and 2 more: rdzv status llama --epochs"
    )
    long = EpochEnd(epoch=1, message="x" * 600)
    assert len(said(state, "ok", epochs=[long] * 32)) < 700
    assert "ok after at least 32 restarts: " in said(state, "ok", epochs=[long] * 32)


def test_96_where_the_log_is_elsewhere_the_last_words_that_are_kept_here_are_named(
    state: StateDir, tmp_path: Path
) -> None:
    log, words = tmp_path / "node-1.log", state.last_words
    words.write([RankWords(1, 1, 3, "boom")])
    end = f"; last output kept in {words.path}"
    assert said(state, log=str(log), hostname="n1").endswith(f"; log: n1:{log}{end}")
    assert said(state).endswith(end)
    assert end not in said(state, "cancelled", log=str(log))
    log.touch()
    assert said(state, log=str(log), hostname="n1").endswith(f"; log: {log}")


def test_96_of_a_failure_the_tail_stands_above_with_the_last_words_the_hint_and_the_log(
    state: StateDir, tmp_path: Path
) -> None:
    log = tmp_path / "node-1.log"
    more: dict[str, Any] = {"tail": ["Traceback", "ValueError: x", "-----"], "hint": "mend it"}
    node: dict[str, Any] = {"node": 1, "hostname": "h1", "log": str(log)}
    above = (
        "rdzv: last output of node 1 (h1):\nrdzv:   | Traceback\nrdzv:   | ValueError: x\nrdzv:  "
        " | -----\nrdzv: run 'llama' failed: node 1 failed; last output of node 1 (h1): "
        "'ValueError: x'"
    )
    assert said(state, **more, **node) == f"{above}; mend it; {CODE}; log: h1:{log}"
    log.touch()
    assert said(state, **more, **node) == f"{above}; mend it; {CODE}; log: {log}"
    assert "; last output" not in said(state, tail=["node 1 failed"])  # the message has it
    shown = ["rank 1 said: KeyError: 1"]
    assert "; last output" not in said(state, **more, evidence=shown)  # it has the one that counts


def test_96_a_terminal_has_the_cause_the_next_step_and_the_place_in_a_line_each(
    state: StateDir,
) -> None:
    result = Result(
        status="failed", exit_code=3, message="word " * 100, hint="mend it", epochs=[epoch(1)]
    )
    shown = last_line("llama", result, state, width=80).splitlines()
    words = f"      {'word ' * 14}word"
    assert shown == [
        f"rdzv: run 'llama' failed after 1 restart: {'word ' * 6}word",
        *[words] * 2,
        f"      {'word ' * 13}word…",
        "rdzv:   next: mend it",
        "rdzv:   exit code 3 (rdzv's); more: rdzv status llama",
    ]
    brief = result.model_copy(update={"message": "it failed", "log": "/l"})
    assert last_line("llama", brief, state, width=80).splitlines() == [
        "rdzv: run 'llama' failed after 1 restart: it failed",
        "rdzv:   next: mend it",
        "rdzv:   exit code 3 (rdzv's); log: /l",
    ]
    whole = last_line("llama", result, state, whole=True, width=80).splitlines()
    assert whole == [
        f"rdzv: run 'llama' failed after 1 restart: {'word ' * 100}",
        "rdzv:   next: mend it",
        f"rdzv:   {EPOCHS[0]}",
        f"rdzv:   exit code 3 (rdzv's); log: {state.logs}",
    ]
    well = Result(status="ok", exit_code=0, message="all 2 ended")
    assert last_line("llama", well, state, width=80) == last_line("llama", well, state)


def test_96_the_log_of_the_rank_is_named_where_it_is_here(state: StateDir) -> None:
    node: dict[str, Any] = {"node": 1, "rank": 3, "log": str(state.logs / "node-1.e2.log")}
    state.write("logs/node-1.e2.log", b"x")
    assert said(state, **node).endswith(f"; log: {state.logs}/node-1.e2.log")
    state.write("logs/rank-3.e2.log", b"x")
    assert said(state, **node).endswith(f"; log: {state.logs}/rank-3.e2.log")


def test_96_of_a_long_cause_the_beginning_is_told_and_where_all_of_it_is(state: StateDir) -> None:
    cause = "word " * 100
    end = said(state, message=cause, hint="mend it")
    assert end == (
        f"rdzv: run 'llama' failed: {'word ' * 58}word…; mend it; {CODE}; log: {state.logs}; "
        "the whole cause: rdzv status llama"
    )
    result = Result(status="failed", exit_code=3, message=cause)
    assert f"run 'llama' failed: {cause};" in last_line("llama", result, state, whole=True)
    unbroken = said(state, message="x" * 400)
    assert f" failed: {'x' * 299}…; " in unbroken


def test_96_where_other_nodes_ran_elsewhere_it_is_said_how_to_see_their_output(
    tmp_path: Path,
) -> None:
    state = launched(tmp_path, PLACE)
    record = state.record()
    assert record is not None
    state.write_record(record.model_copy(update={"scheduler": "ssh", "nodes": "2"}))
    assert said(state, "ok", message="all 2 ended") == (
        "rdzv: the output of the other nodes: rdzv logs llama\nrdzv: run 'llama' ok: all 2 ended"
    )
    state.write_record(record.model_copy(update={"scheduler": "ssh", "nodes": "1"}))
    assert said(state, "ok", message="it ended") == "rdzv: run 'llama' ok: it ended"


def test_96_who_waited_for_nodes_in_vain_hears_where_they_should_have_come(state: StateDir) -> None:
    where = "(port 29600 of 10.0.0.1, fd00::1)"
    assert f"node 1 failed {where}; {CODE}; log: " in said(state, code="join_timeout")
    assert where not in said(state, code="node_lost")
