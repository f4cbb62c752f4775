"""Recordings of launches and nodes: every input, and what `rdzv replay` says of them.

The stored ones are of one real launch, that of `python -m tests.launcher.test_recordings`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from launcher.run import inputs as of_a_launch
from launcher.run.ground import Former, OnDisk, Wanted
from launcher.run.recorded import CODEC as LAUNCH
from launcher.run.recorded import drop_if_long, made_with
from launcher.run.values import LaunchFacts, Trouble
from rendezvous.recording.reading import Recording, inputs_of, read, replay
from rendezvous.recording.recorder import Codec, DirectRecorder
from rendezvous.talk.join_string import group_token_text
from rendezvous.talk.secret_words import HIDDEN
from rendezvous.wire.errors import ExitCode, Unavailable
from rendezvous.wire.node import JoinReply, JoinRequest
from tests.launcher.command import rdzv
from tests.support.recordings import (
    CODECS,
    STORED,
    Kept,
    differing,
    load,
    replayed,
    seen_of,
    values_of,
)
from worker.agent import inputs as of_a_node
from worker.agent.recorded import CODEC as NODE
from worker.contracts import Contract

ROOT = Path(__file__).parent.parent.parent
WIRE = ROOT / "tests" / "wire"
KINDS = [(codec, kind) for codec in CODECS.values() for kind in codec.inputs]
JOIN = group_token_text(bytes(32))
TOKEN = "hf_" + "A" * 20


def recorded(codec: Codec, said: list[Any], folder: Path) -> Recording:
    """Read back what is written of these inputs."""
    kept = Kept()
    recorder = DirectRecorder(codec, kept)
    recorder.begin({}, 10.0)
    for number, one in enumerate(said):
        recorder.take(one, 10.1 + number, [])
    return read([kept.save(folder / "recording.jsonl")])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all the examples of a property."""
    return tmp_path_factory.mktemp("recordings")


@pytest.mark.parametrize(("codec", "kind"), KINDS, ids=[f"{c.of}-{k.__name__}" for c, k in KINDS])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_input_is_read_back_as_it_was(
    codec: Codec, kind: type, folder: Path, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(values_of(kind), min_size=1, max_size=5))
    said = [codec.without_secrets(one) for one in drawn]
    said += said[-1:]  # and once more, of which less is written
    found = [one for _, one in inputs_of(recorded(codec, said, folder), codec)]
    assert [seen_of(one) for one in found] == [seen_of(one) for one in said]


# --- what must not be written ---------------------------------------------------------------------


def of_wire(kind: Any) -> Any:
    return TypeAdapter(kind).validate_json((WIRE / f"{kind.__name__}.json").read_bytes())


def test_a_recording_of_a_node_holds_no_secrets(folder: Path) -> None:
    kept: dict[str, Any] = {"nccl_log": "/l", "port": 7, "fatal_workers": True}
    contract = Contract(["a", TOKEN], {"A": TOKEN}, notes=[TOKEN], withheld={"B": TOKEN}, **kept)
    reply = of_wire(JoinReply).model_copy(update={"credential": TOKEN})
    request = replace(of_wire(JoinRequest), join_id="join-id-that-is-secret")
    tail = (f"password=pa55 in {TOKEN}", "https://me:pa55@host/", JOIN)
    said = [
        of_a_node.Armed(1, contract),
        of_a_node.Joined(2, reply, "http://a"),
        of_a_node.Offered(3, request),
        of_a_node.Failed(4, Unavailable(f"it said {JOIN}", hint=f"token={TOKEN}")),
        of_a_node.PartBroken("sending", ValueError(TOKEN)),
        of_a_node.ProgramGone(5, None, of_a_node.OwnWords(tail)),
    ]
    found = recorded(NODE, said, folder)
    text = (folder / "recording.jsonl").read_text()
    assert not [one for one in ("AAAA", "pa55", "join-id-that") if one in text]
    (armed, *_) = (one for _, one in inputs_of(found, NODE))
    shown = armed.contract
    assert (shown.argv, shown.notes, shown.variables) == ([HIDDEN], [HIDDEN], {})
    assert {name: getattr(shown, name) for name in kept} == kept


def test_what_a_registry_said_of_itself_is_replayed(folder: Path) -> None:
    away, there = Unavailable("away"), Unavailable("no database", hint="wait")
    there.told = True
    found = recorded(NODE, [of_a_node.Failed(1, error) for error in (away, there)], folder)
    replayed = [one.error for _, one in inputs_of(found, NODE)]
    assert [(type(one), one.message, one.hint, one.told) for one in replayed] == [
        (Unavailable, "away", "", False),
        (Unavailable, "no database", "wait", True),
    ]
    troubles = [of_a_launch.Unanswered(1, Trouble.of(error)) for error in (away, there)]
    found = recorded(LAUNCH, troubles, folder)
    assert [one for _, one in inputs_of(found, LAUNCH)] == troubles


def test_a_recording_of_a_launch_holds_no_secrets(folder: Path) -> None:
    said = [
        of_a_launch.LineRead(1, f"password=pa55 {TOKEN}"),
        of_a_launch.SchedulerSilent(2, f"no such file: {JOIN}"),
        of_a_launch.ChildEnded(3, 1, f"key={TOKEN}"),
        of_a_launch.NotWritten(4, JOIN),
    ]
    recorded(LAUNCH, said, folder)
    text = (folder / "recording.jsonl").read_text()
    assert not [one for one in ("AAAA", "pa55") if one in text]


@pytest.mark.parametrize(("former", "same"), [("a" * 64, True), ("b" * 64, False), ("", False)])
def test_of_fingerprints_only_their_likeness_is_written(former: str, same: bool) -> None:
    facts = LaunchFacts(None, None, True, True)
    found = OnDisk(Former("id", "h", "local", True, 1, fingerprint=former))
    values = made_with(facts, found, Wanted("h", "local", "a" * 64))
    kept = values["found"].former.fingerprint
    assert (kept == values["wanted"].fingerprint, bool(kept)) == (same, bool(former))
    assert "aaaa" not in repr(values)
    assert made_with(facts, OnDisk(), Wanted("h", "local", ""))["found"] == OnDisk()


# --- stored ones, and what `rdzv replay` prints ---------------------------------------------------


@pytest.mark.parametrize("name", [*CODECS])
def test_the_machines_still_do_what_they_did_in_a_stored_recording(name: str) -> None:
    path = STORED / f"{name}.jsonl"
    recording, codec = load(path)
    assert (recording.of, codec.of) == (name, name)
    assert differing(path) == []
    assert replayed(path)[-1].recorded[-1].startswith("End(")


def run_replay(path: Path, *options: str) -> Result:
    return rdzv("replay", str(path), *options)


def changed(path: Path, line_number: int, /, **changes: Any) -> None:
    """Change one line of a recording; 0: the first."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[line_number] |= changes
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


@pytest.fixture(params=[*CODECS])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of each stored recording."""
    copy = tmp_path / f"{request.param}.jsonl"
    copy.write_bytes((STORED / copy.name).read_bytes())
    return copy


def test_a_recording_has_no_spans(path: Path, tmp_path: Path) -> None:
    done = run_replay(path, "--otlp", str(tmp_path / "spans.json"))
    assert done.exit_code == ExitCode.USAGE
    assert done.stderr == f"rdzv: {path} is a recording; --otlp needs a run or its journal\n"


def test_a_replay_shows_each_input_and_what_was_done(path: Path) -> None:
    done = run_replay(path)
    lines = done.output.splitlines()
    count = len(path.read_text().splitlines())
    assert (done.exit_code, len(lines)) == (0, count + 1)
    assert lines[0].startswith(f"    0     0.000 s  the {path.stem} begins: ")
    assert lines[-1].startswith(
        f"{count - 1} inputs of a {path.stem} replayed, all with the recorded actions"
    )
    rows = [json.loads(line) for line in run_replay(path, "--json").output.splitlines()]
    assert [row["number"] for row in rows] == [*range(count)]
    assert all(row["actions"] == row["recorded"] for row in rows)


def test_of_a_run_that_ended_well_a_long_recording_is_dropped(tmp_path: Path) -> None:
    parts = [tmp_path / f"recording.jsonl{end}" for end in ("", ".first", ".1")]
    for size, kept in ((30 << 10, parts), (40 << 10, [])):
        for part in parts:
            part.write_bytes(b"x" * size)
        drop_if_long(tmp_path)
        assert [part for part in parts if part.exists()] == kept
    drop_if_long(tmp_path)


def test_a_difference_is_shown_with_the_version_and_is_the_exit_code(path: Path) -> None:
    changed(path, 0, version="0.0.1")
    changed(path, 2, actions=["Refuse(7)"])
    done = run_replay(path)
    *_, last = lines = done.output.splitlines()
    assert done.exit_code == 1
    assert ": Refuse(7); NOW " in lines[2]
    assert "1 now with other actions" in last
    assert "; recorded by rdzv 0.0.1, replayed by " in last


def test_a_machine_that_fails_is_shown_as_well() -> None:
    path = STORED / "node.jsonl"
    recording, _ = load(path)

    def start(_: Any, __: float) -> Any:
        return (), lambda *_: 1 / 0

    _, second, *_ = replay(recording, replace(NODE, start=start))
    assert second.actions == ["raises ZeroDivisionError('division by zero')"]


def test_what_follows_a_gap_is_shown_and_not_replayed(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    words = "rdzv: 12 bytes of output are omitted here (--log-limit)   \n"
    path.with_name(f"{path.name}.first").write_text("".join(lines[:5]))
    path.write_text(words + "".join(lines[8:]) + '{"number":')
    done = run_replay(path)
    assert done.exit_code == 0
    shown = done.output.splitlines()
    assert shown[5].endswith("; not replayed")
    assert shown[-1].startswith(
        f"4 inputs of a {path.stem} replayed, all with the recorded actions"
    )
    assert f"; {len(lines) - 8} after the first gap were not replayed" in shown[-1]


@pytest.mark.parametrize(
    ("number", "changes", "says"),
    [
        (0, {"format": 2}, "is a recording of format 2, but this rdzv reads format 1"),
        (0, {"of": "registry"}, "is a recording of 'registry'"),
        (0, {"made_with": {"what": 1}}, "what the machine was made with cannot be understood"),
        (0, {"at": "soon"}, "is not a complete recording"),
        (0, {"more": 1}, "is not a complete recording"),
        (1, {"input": "Whatever"}, "input 1 cannot be understood: KeyError('Whatever')"),
        (1, {"values": {"number": "x"}}, "input 1 cannot be understood"),
        (1, {"same": ["number"]}, "input 1 cannot be understood"),
        (2, {"number": None}, "is not a complete recording"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_usage(
    path: Path, number: int, changes: dict[str, Any], says: str
) -> None:
    changed(path, number, **changes)
    done = run_replay(path)
    assert (done.exit_code, says in done.stderr) == (64, True), done.stderr


def make() -> None:
    """Store the recordings of a launch of two nodes here, the second of which fails."""
    program = "import os, sys, time; time.sleep(1); sys.exit(3 * (os.environ['RANK'] == '1'))"
    with tempfile.TemporaryDirectory() as state:
        words = ["--nnodes", "2", "--rdzv-id", "r", "--framework", "env", "--record"]
        command = [sys.executable, "-m", "rdzv", "launch", "--state-dir", state]
        subprocess.run([*command, *words, "--", "python3", "-c", program], cwd=ROOT)
        STORED.mkdir(parents=True, exist_ok=True)
        for name, path in (
            ("launch", Path(state) / "r" / "recording.jsonl"),
            ("node", Path(state) / "r" / "logs" / "recording-slot-1-1.jsonl"),
        ):
            text = path.read_text().replace(state, "/state")
            text = re.sub(r'"(boot_id|machine_id)":"[^"]*"', r'"\1":"0"', text)
            (STORED / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    make()
