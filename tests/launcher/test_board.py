"""What the person sees: the table of each phase, plain lines, JSON lines; nothing foreign acts."""

from __future__ import annotations

import io
import json
import re
import textwrap
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from launcher.show.board import JsonBoard, LiveBoard, PlainBoard, draw
from rendezvous.wire.run import (
    EventLine,
    NodeState,
    Phase,
    Result,
    RunStatus,
    SlotState,
    SlotStatus,
)

GATHERING = "waiting for 2 of 4 nodes, 50 s left: slot 2 queued 4 min (Resources); slot 3 submitted"


def slot(number: int, **values: Any) -> SlotStatus:
    defaults: dict[str, Any] = {
        "generation": 1,
        "wanted_generation": 1,
        "state": SlotState.RUNNING,
        "detail": f"pid {1000 + number}",
    }
    return SlotStatus(slot=number, **(defaults | values))


def node(number: int, state: NodeState, **values: Any) -> SlotStatus:
    defaults: dict[str, Any] = {
        "node_state": state,
        "hostname": f"node-{number}",
        "address": f"10.0.0.{number + 1}",
        "nproc_per_node": 8,
    }
    return slot(number, **(defaults | values))


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
    return EventLine(
        number=7,
        at_seconds=1.25,
        kind=kind,
        reason=reason,
        phase=Phase.RUNNING,
        epoch=1,
        usual=usual,
    )


def shown(status: RunStatus, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    with console.capture() as capture:
        console.print(draw(status))
    return lines(capture.get())


def lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def expected(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


# ---- the table ----------------------------------------------------------------------------------


def test_a_gathering_run_shows_what_each_slot_is_waited_for() -> None:
    status = run_status(
        node(0, NodeState.JOINED, hostname="gpu-a", address="fd00::1"),
        slot(1),
        slot(2, generation=2, state=SlotState.QUEUED, state_seconds=241.5, detail="Resources"),
        slot(3, state=SlotState.NONE, detail=""),
    )
    assert shown(status) == expected("""
        run llama   gathering   3.2 s
        slot  rank  worker run                              node   address  procs  state
        0           running                                 gpu-a  fd00::1  8      joined
        1           running: pid 1001                                              not here yet
        2           queued 4 min (generation 2): Resources                         not here yet
        3           -                                                              not here yet
        waiting for 2 of 4 nodes, 50 s left: slot 2 queued 4 min (Resources); slot 3 submitted
    """)


def test_a_trouble_of_the_registry_is_shown_where_the_sentence_does_not_tell_it() -> None:
    full = "the journal could not be written"
    forming = run_status(slot(0), reason=full, trouble=full)
    assert shown(forming).count(full) == 1
    running = run_status(
        node(0, NodeState.RUNNING, rank=0),
        phase=Phase.RUNNING,
        reason="running on 1 nodes",
        trouble=full,
    )
    assert shown(running).splitlines()[-2:] == ["running on 1 nodes", full]


def test_an_arming_run_shows_ranks_and_who_has_acknowledged() -> None:
    status = run_status(
        node(0, NodeState.ARMED, rank=0),
        node(1, NodeState.VERIFIED, rank=2),
        node(2, NodeState.ARMED, rank=1, nproc_per_node=1),
        phase=Phase.ARMING,
        reason="waiting for slot 1 (node-1) to acknowledge the table, 60 s left",
    )
    assert shown(status) == expected("""
        run llama   arming   3.2 s
        slot  rank  worker run  node    address   procs  state
        0     0     running     node-0  10.0.0.1  8      armed
        1     2     running     node-1  10.0.0.2  8      verified
        2     1     running     node-2  10.0.0.3  1      armed
        waiting for slot 1 (node-1) to acknowledge the table, 60 s left
    """)


def test_a_finished_run_shows_exit_codes_and_problems() -> None:
    status = run_status(
        node(0, NodeState.LEFT, rank=0, exit_code=0),
        node(1, NodeState.EXITED, rank=1, exit_code=137),
        node(2, NodeState.LOST, rank=2, problem="silent for 15.0 s"),
        slot(3, state=SlotState.FAILED, detail="", problem="no such queue"),
        phase=Phase.FINISHED,
        elapsed_seconds=3723.96,
        reason="node 1 (node-1) failed with exit code 137",
    )
    assert shown(status) == expected("""
        run llama   finished   3724.0 s
        slot  rank  worker run  node    address   procs  state
        0     0     running     node-0  10.0.0.1  8      left, exit code 0
        1     1     running     node-1  10.0.0.2  8      ended, exit code 137
        2     2     running     node-2  10.0.0.3  8      lost: silent for 15.0 s
        3           failed                               no such queue
        node 1 (node-1) failed with exit code 137
    """)


def test_what_peers_say_is_neither_markup_nor_moves_the_cursor() -> None:
    status = run_status(
        node(0, NodeState.LOST, hostname="[red]x[/red]", problem="[/] [link=x]\\"),
        slot(1, detail="\x1b[2J\x07:bug:\r\nb"),
        reason="[bold]\x1b]0;title\x07",
        run="[b]",
    )
    assert shown(status) == expected("""
        run [b]   gathering   3.2 s
        slot  rank  worker run               node          address   procs  state
        0           running                  [red]x[/red]  10.0.0.1  8      lost: [/] [link=x]\\
        1           running: ?[2J?:bug:?; b                                 not here yet
        [bold]?]0;title?
    """)


def test_where_the_width_is_short_words_wrap_and_addresses_stay_whole() -> None:
    status = run_status(
        node(0, NodeState.LOST, address="2001:db8::9abc:def0:1234:5678", problem="it was closed"),
        reason="A sentence of more words than fit into one line of a terminal as narrow as this.",
    )
    assert shown(status, width=80) == expected("""
        run llama   gathering   3.2 s
        slot  rank  worker run  node    address                        procs  state
        0           running     node-0  2001:db8::9abc:def0:1234:5678  8      lost: it
                                                                              was closed
        A sentence of more words than fit into one line of a terminal as narrow as this.
    """)


def test_of_a_hundred_slots_thirty_two_are_shown() -> None:
    table = shown(run_status(*(slot(number) for number in range(100)))).splitlines()
    assert [line.split()[0] for line in table[2:34]] == [str(number) for number in range(32)]
    assert table[34:] == ["and 68 more", GATHERING]


def test_where_not_all_fit_those_that_are_waited_for_are_shown_in_order_of_slot() -> None:
    here = [node(number, NodeState.ARMED) for number in range(95)]
    here[40] = node(40, NodeState.VERIFIED)
    here[50] = node(50, NodeState.LOST)
    late = [slot(number) for number in range(95, 100)]
    table = shown(run_status(*here, *late)).splitlines()
    numbers = [int(line.split()[0]) for line in table[2:34]]
    assert numbers == [*range(25), 40, 50, 95, 96, 97, 98, 99]


# ---- live ---------------------------------------------------------------------------------------


def live(height: int = 40) -> tuple[LiveBoard, io.StringIO]:
    stream = io.StringIO()
    console = Console(
        file=stream, width=100, height=height, force_terminal=True, color_system=None, _environ={}
    )
    return LiveBoard(console), stream


def left(stream: io.StringIO) -> str:
    """What stands on the terminal from the last table on."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", stream.getvalue())
    return lines(text[text.rindex("run llama") :])


def test_the_live_board_leaves_the_terminal_to_the_programs_when_they_run() -> None:
    board, stream = live()
    board.status(run_status(slot(0)))
    board.event(event("slot 0 joined"))
    running = run_status(
        node(0, NodeState.RUNNING, rank=0), phase=Phase.RUNNING, reason="running on 1 nodes"
    )
    board.status(running)
    board.status(running)
    board.event(event("slot 0 is running", "acked", usual=True))
    board.event(event("slot 0: NCCL uses IB", "progressed", usual=True))
    board.event(event("slot 0: NCCL uses sockets", "progressed"))
    board.event(event("slot 0: it [exited] with 0", "exited"))
    board.event(event("the verdict fell", "verdict"))
    board.say("a worker run could not be cancelled: [why]\nhint")
    board.close()
    assert left(stream) == expected("""
        run llama   running   3.2 s
        slot  rank  worker run  node    address   procs  state
        0     0     running     node-0  10.0.0.1  8      running
        running on 1 nodes
        rdzv: slot 0: NCCL uses sockets
        rdzv: slot 0: it [exited] with 0
        rdzv: a worker run could not be cancelled: [why]; hint
    """)


def test_a_live_board_that_is_closed_early_leaves_the_last_table() -> None:
    board, stream = live()
    board.status(run_status(slot(0), reason="one"))
    board.status(run_status(slot(0), reason="two"))
    board.close()
    board.close()
    assert left(stream).splitlines()[-1] == "two"


def test_98_a_run_that_ends_before_the_go_leaves_the_table_and_no_other_is_drawn() -> None:
    board, stream = live()
    ended = run_status(slot(0), phase=Phase.FINISHED, reason="it failed")
    board.status(ended)
    assert left(stream).splitlines()[-1] == "it failed"
    drawn = stream.getvalue()
    board.status(ended)
    board.event(event("slot 0 joined", "joined"))
    board.close()
    assert stream.getvalue() == drawn


def test_a_live_board_shows_no_more_rows_than_the_terminal_has() -> None:
    board, stream = live(height=10)
    board.status(run_status(*(slot(number) for number in range(100)), reason="waiting"))
    board.close()
    table = left(stream).splitlines()
    assert len(table) == 10
    assert table[-2:] == ["and 94 more", "waiting"]


# ---- plain --------------------------------------------------------------------------------------


def test_the_plain_board_says_what_happened_and_then_what_is_waited_for() -> None:
    stream, now = io.StringIO(), [100.0]
    board = PlainBoard(stream, clock=lambda: now[0])
    board.say("resuming launch k7f2a9c1xy")
    board.event(event("slot 0 (node-0) joined"))
    board.status(run_status())  # something was said a moment ago
    board.event(event("slot 0 (node-0) verified", usual=True))
    now[0] += 1.5
    board.status(run_status())
    for seconds in range(49, 40, -1):
        now[0] += 1.5
        board.status(run_status(reason=GATHERING.replace("50", str(seconds))))
    board.status(run_status(elapsed_seconds=20.0, reason="waiting for slot 3, 9 s left", topic=2))
    result = Result(status="ok", exit_code=0, message="done")
    now[0] += 1.5
    board.status(run_status(phase=Phase.FINISHED, reason="done", result=result))
    board.close()
    assert stream.getvalue() == (
        "rdzv: resuming launch k7f2a9c1xy\n"
        "rdzv     1.2 s  slot 0 (node-0) joined\n"
        f"rdzv     3.2 s  {GATHERING}\n"
        "rdzv    20.0 s  waiting for slot 3, 9 s left\n"
    )


def test_what_is_waited_for_is_said_after_the_runs_first_event() -> None:
    stream, now = io.StringIO(), [100.0]
    board = PlainBoard(stream, clock=lambda: now[0])
    board.status(run_status(elapsed_seconds=0.1))
    now[0] += 1.5  # it is late
    board.status(run_status(elapsed_seconds=1.6))
    board.event(replace(event("run 'llama' was created", "created"), at_seconds=0.0))
    board.status(run_status(elapsed_seconds=1.6))
    now[0] += 1.5
    board.status(run_status(elapsed_seconds=3.1))
    said = [line.split()[1] for line in stream.getvalue().splitlines()]
    assert said == ["0.0", "3.1"]


def test_where_no_events_come_what_is_waited_for_is_said_all_the_same() -> None:
    stream, now = io.StringIO(), [100.0]
    board = PlainBoard(stream, clock=lambda: now[0])
    for seconds in range(8):
        board.status(run_status(elapsed_seconds=float(seconds)))
        now[0] += 1
    said = [line.split()[1] for line in stream.getvalue().splitlines()]
    assert said == ["5.0"]


def started(stream: io.StringIO, now: list[float]) -> PlainBoard:
    """A board that has shown the run's first event, which every node does alike."""
    board = PlainBoard(stream, clock=lambda: now[0])
    board.event(event("slot 0 (node-0) verified", usual=True))
    return board


def test_the_plain_board_says_again_and_ever_more_seldom_for_how_long_it_is_waited() -> None:
    stream, now = io.StringIO(), [100.0]
    board = started(stream, now)
    for minute in range(10):
        reason = f"waiting for 1 of 2 nodes: slot 1 queued {minute} min (Quota)"
        board.status(run_status(reason=reason, elapsed_seconds=60.0 * minute))
        now[0] += 60
    said = [line.split()[1] for line in stream.getvalue().splitlines()]
    assert said == ["0.0", "60.0", "180.0", "420.0"]


LATE_TO_END = "1 of 2 nodes ended with exit code 0; waiting for node 1 (h1, slot 1) to end for {}"


def test_while_programs_run_the_plain_board_says_only_who_is_late_to_end() -> None:
    stream, now = io.StringIO(), [100.0]
    board = started(stream, now)
    for minute in range(10):
        reason, ending = "running on 2 nodes", minute >= 2
        if ending:
            reason = LATE_TO_END.format(f"{minute} min")
        status = run_status(phase=Phase.RUNNING, reason=reason, ending=ending)
        board.status(status.model_copy(update={"elapsed_seconds": 60.0 * minute}))
        now[0] += 60
    said = [line.split()[1] for line in stream.getvalue().splitlines()]
    assert said == ["120.0", "180.0", "300.0", "540.0"]
    assert LATE_TO_END.format("2 min") in stream.getvalue()


def test_the_live_board_says_who_is_late_to_end_between_the_programs_lines() -> None:
    stream, now = io.StringIO(), [100.0]
    console = Console(file=stream, width=120, force_terminal=True, color_system=None, _environ={})
    board = LiveBoard(console, clock=lambda: now[0])
    board.status(run_status(phase=Phase.RUNNING, reason="running on 2 nodes"))
    for seconds in (10, 20, 30):
        now[0] += 10
        reason = LATE_TO_END.format(f"{seconds} s")
        board.status(run_status(phase=Phase.RUNNING, reason=reason, ending=True))
    assert stream.getvalue().count("waiting for node 1") == 1
    assert LATE_TO_END.format("10 s") in stream.getvalue()


def test_a_last_call_is_said_once() -> None:
    stream, now = io.StringIO(), [100.0]
    board = started(stream, now)
    for seconds in range(30, 25, -1):
        now[0] += 1.5
        board.status(run_status(reason=f"2 of 2:4 nodes joined; last call: {seconds} s left"))
    assert stream.getvalue() == "rdzv     3.2 s  2 of 2:4 nodes joined; last call: 30 s left\n"


def test_nothing_that_peers_say_reaches_a_plain_board_as_a_control_character() -> None:
    stream = io.StringIO()
    board = PlainBoard(stream)
    board.event(event("slot 0: \x1b[2J\r\nrdzv: run 'llama' ok"))
    board.say("one\x9b2J\ntwo\u202e")
    assert stream.getvalue() == (
        "rdzv     1.2 s  slot 0: ?[2J?; rdzv: run 'llama' ok\nrdzv: one?2J; two?\n"
    )


# ---- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("everyone_left", [True, False])
def test_the_json_board_writes_one_object_a_line_and_the_result_last_and_once(
    everyone_left: bool,
) -> None:
    stream = io.StringIO()
    board = JsonBoard(stream)
    result = Result(status="failed", exit_code=3, message="node 1 failed", slot=1, tail=["\x1b"])
    board.status(run_status())
    board.event(event("slot 0\njoined"))
    for _ in range(2):
        board.status(run_status(result=result, everyone_left=everyone_left))
    board.say("a worker run could not be cancelled")
    board.close()
    board.close()
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {
            "number": 7,
            "at_seconds": 1.25,
            "kind": "joined",
            "reason": "slot 0\njoined",
            "phase": "running",
            "epoch": 1,
            "slot": None,
            "usual": False,
        },
        {"kind": "launcher", "reason": "a worker run could not be cancelled"},
        {
            "kind": "result",
            "status": "failed",
            "exit_code": 3,
            "message": "node 1 failed",
            "hint": "",
            "code": "",
            "slot": 1,
            "rank": None,
            "hostname": "",
            "worker_rank": None,
            "tail": ["\x1b"],
            "log": "",
            "command_word": None,
        },
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
