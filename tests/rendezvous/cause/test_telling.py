"""Which row a failed rank fits, by value."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rendezvous.cause.clues import LAST_LINE, LOGGED
from rendezvous.cause.facts import FactKind
from rendezvous.cause.seen import NodeSeen, Proof, Suspect
from rendezvous.cause.telling import suspects_of
from rendezvous.wire.evidence import Clue, Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport


def node(
    ends: Sequence[RankEnd], clues: Sequence[Clue] = (), facts: Sequence[Fact] = (), words: str = ""
) -> NodeSeen:
    evidence = Evidence(ranks=list(ends), clues=list(clues), facts=list(facts))
    code = max((end.exit_code or 0 for end in ends), default=1)
    report = ExitReport(epoch=1, exit_code=code, evidence=evidence)
    return NodeSeen(0, 100.0, report, failed=True, ranks=range(len(ends)), scheduler=words)


def one(code: int, clues: Sequence[Clue] = (), *facts: Fact, words: str = "") -> Suspect:
    (suspect,) = suspects_of(
        node([RankEnd(rank=0, exit_code=code, ended=0.0)], clues, facts, words)
    )
    return suspect


def said(row: str, line: str = "words", at: float | None = None, last: bool = False) -> Clue:
    return Clue(id=row, line=line, rank=0, at=at, raised=last, last=last)


TRACEBACK = "Traceback (most recent call last):"
FRAME = '  File "/app/train.py", line 7, in step'
SHM = FactKind.SHARED_MEMORY
FACT = Proof.FACT


@pytest.mark.parametrize(
    ("code", "clue", "fact", "row", "proof"),
    [
        (137, None, Fact(kind=FactKind.OOM_KILL, value=1), "memory_limit", Proof.FACT),
        (137, None, Fact(kind=FactKind.OOM_MACHINE, value=1), "machine_memory", Proof.FACT),
        (137, "exception", None, "killed", Proof.CODE),
        (135, None, Fact(kind=SHM, value=0, limit=64 << 20), "shared_memory", Proof.FACT),
        (135, None, Fact(kind=SHM, value=2 << 20, limit=64 << 20), "bus_error", Proof.CODE),
        (135, None, Fact(kind=SHM, value=8 * 10**6 - 1, limit=8 * 10**9), "shared_memory", FACT),
        (135, None, Fact(kind=SHM, value=8 * 10**6, limit=8 * 10**9), "bus_error", Proof.CODE),
        (135, None, Fact(kind=FactKind.SPACE, path="/d"), "disk_full", Proof.FACT),
        (1, "disk_full", Fact(kind=FactKind.INODES, path="/d"), "inodes", Proof.FACT),
        (1, "write_failed", None, "write_failed", Proof.LINE),
        (1, "write_failed", Fact(kind=FactKind.SPACE, path="/d"), "disk_full", Proof.FACT),
        (1, "write_failed", Fact(kind=FactKind.INODES, path="/d"), "inodes", Proof.FACT),
        (1, "write_failed", Fact(kind=FactKind.RLIMIT, path="fsize"), "file_limit", Proof.FACT),
        (1, "disk_full", Fact(kind=FactKind.RLIMIT, path="fsize"), "disk_full", Proof.LINE),
        (1, "open_files", Fact(kind=FactKind.RLIMIT, path="nofile"), "open_files", Proof.FACT),
        (1, "cuda_fault", Fact(kind=FactKind.GPU, words="ecc"), "gpu_ecc", Proof.FACT),
        (1, "exception", Fact(kind=FactKind.GPU, words="ecc"), "exception", Proof.LINE),
        (1, "exception", Fact(kind="of a newer worker", value=7), "exception", Proof.LINE),
        (1, "of_a_newer_worker", None, "exit_code", Proof.CODE),
        (1, "arguments", None, "exit_code", Proof.CODE),
        (2, "arguments", None, "arguments", Proof.LINE),
    ],
)
def test_a_fact_beats_a_line_and_a_line_a_code(
    code: int, clue: str | None, fact: Fact | None, row: str, proof: Proof
) -> None:
    suspect = one(code, [said(clue)] if clue else [], *([fact] if fact else []))
    assert (suspect.row, suspect.proof) == (row, proof)


@pytest.mark.parametrize(
    ("xid", "row"), [(79, "gpu_xid"), (31, "cuda_fault"), (143, "gpu_xid"), (13, "cuda_fault")]
)
def test_only_some_of_the_drivers_errors_are_of_the_device(xid: int, row: str) -> None:
    line = f"NVRM: Xid (PCI:0000:4b:00): {xid}, pid=1"
    assert one(1, [said("cuda_fault")], Fact(kind=FactKind.KERNEL, words=line)).row == row


@pytest.mark.parametrize(
    ("words", "oom", "row"),
    [
        ("(pid 7) is killed by signal: Killed.", False, "killed"),
        ("(pid 7) is killed by signal: Killed.", True, "memory_limit"),
        ("(pid(s) 7) exited unexpectedly", True, "memory_limit"),
        ("(pid(s) 7) exited unexpectedly", False, "loader_worker"),
        ("(pid 7) is killed by signal: Segmentation fault.", True, "loader_worker"),
    ],
)
def test_a_loaders_worker_may_be_what_the_kernel_killed(words: str, oom: bool, row: str) -> None:
    facts = [Fact(kind=FactKind.OOM_KILL, value=1)] * oom
    assert (
        one(1, [said("loader_worker", f"RuntimeError: DataLoader worker {words}")], *facts).row
        == row
    )


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("Evicted: low on memory", "evicted"),
        ("TIMEOUT", "time_limit"),
        ("PREEMPTED", "preempted"),
        ("OOMKilled", "memory_limit"),
        ("", "terminated"),
    ],
)
def test_what_a_scheduler_ends_it_explains(words: str, row: str) -> None:
    assert one(143, words=words).row == row


@pytest.mark.parametrize("line", ["terminate called after throwing", "Fatal Python error: Aborted"])
def test_native_code_that_gives_up_of_what_it_suffered_is_no_cause(line: str) -> None:
    assert one(134, [said("watchdog_timeout"), said("abort", line)]).row == "watchdog_timeout"
    assert one(134, [said("abort", line)]).row == "abort"
    assert one(134, [said("waited"), said("abort", "  what():  my own error")]).row == "abort"


@pytest.mark.parametrize("code", [143, 137, 129])
def test_a_signal_after_an_exception_was_for_who_hung_at_its_end(code: int) -> None:
    assert one(code, [said("exception", at=-1.0, last=True)]).row == "exception"
    assert one(code, [said("peer_gone", at=-1.0, last=True)]).row == "peer_gone"
    assert one(code, [said("exception", at=-1.0)]).row in ("terminated", "killed")
    assert one(130, [said("exception", "KeyboardInterrupt", last=True)]).row == "interrupted"
    oom = Fact(kind=FactKind.OOM_KILL, value=1)
    assert one(137, [said("port_taken", last=True)], oom).row == "memory_limit"


def test_a_launchers_signal_is_not_its_ranks() -> None:
    clue = said("exception", at=-1.0, last=True)
    report = ExitReport(epoch=1, exit_code=143, evidence=Evidence(clues=[clue]))
    (suspect,) = suspects_of(NodeSeen(0, 100.0, report, failed=True, ranks=range(2)))
    assert (suspect.row, suspect.rank, suspect.code) == ("exception", 0, None)


def test_a_crash_is_explained_by_what_its_rank_lacked_just_before() -> None:
    words = "OpenBLAS: pthread_create failed: Resource temporarily unavailable"
    assert one(139, [said("threads", words, at=-0.1)]).row == "threads"
    assert one(139, [said("threads", words, at=-5.0)]).row == "segfault"
    assert one(139, [said("peer_gone", at=-0.1)]).row == "peer_gone"
    assert one(139, [said("peer_gone", at=-5.0)]).row == "segfault"
    assert one(137, [said("threads", words, at=-0.1)]).row == "killed"


def test_a_schedulers_word_of_a_kill_for_memory_explains_a_lost_worker() -> None:
    kill = said("memory_limit", "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.")
    worker = said("loader_worker", "DataLoader worker (pid(s) 7) exited unexpectedly", last=True)
    assert (one(1, [worker, kill]).row, one(1, [worker, kill]).clue) == ("memory_limit", kill)
    assert one(1, [said("exception", last=True), kill]).row == "exception"


def test_words_of_another_process_are_no_reason_of_who_ended_by_itself() -> None:
    line = "E0926 17:26:32.1 7 coordination_service_agent.cc:332] Polled an error"
    assert one(134, [said(LOGGED, line)]).row == "communication"
    assert one(134, [said(LOGGED, "E0926 17:26:32.1 7 mine.cc:332] Check failed")]).row == "abort"


def test_what_a_rank_raises_after_it_lost_another_may_only_follow() -> None:
    lost, own = said("peer_gone", at=-3.0), said("exception", at=-1.0, last=True)
    assert one(1, [lost, own]).row == "peer_gone"
    assert one(1, [said("peer_gone", at=-40.0), own]).row == "exception"
    assert one(1, [said("peer_gone", at=-0.5), own]).row == "exception"
    full = said("cuda_memory", at=-1.0, last=True)
    assert one(1, [lost, full]).row == "cuda_memory"


def test_who_had_failed_long_before_its_scheduler_ended_it() -> None:
    limit, failed = said("time_limit", at=0.0), said("cuda_memory", at=-9.0, last=True)
    assert one(143, [failed, limit]).row == "cuda_memory"
    assert one(143, [said("cuda_memory", at=-1.0, last=True), limit]).row == "time_limit"
    assert one(1, words="OUT_OF_MEMORY").row == "memory_limit"


def test_what_a_rank_got_over_long_before_is_not_its_cause() -> None:
    early = said("port_taken", at=-3600.0)
    lost = said("peer_gone", at=0.0, last=True)
    assert one(1, [early, lost]).row == "peer_gone"
    near = said("port_taken", at=-20.0)
    assert (one(1, [near, lost]).row, one(1, [near, lost]).at) == ("port_taken", 80.0)
    # Where it has said nothing else, it may be that; but it failed only when it ended.
    assert (one(1, [early]).row, one(1, [early]).at) == ("port_taken", 100.0)


def test_an_exception_before_a_long_silence_is_when_it_failed() -> None:
    suspect = one(1, [said("exception", at=-600.0, last=True)])
    assert (suspect.row, suspect.at) == ("exception", -500.0)


def test_of_words_that_several_ranks_mix_nobody_knows_whose_they_are() -> None:
    ends = [RankEnd(rank=rank, exit_code=1, ended=rank / 10) for rank in range(3)]
    shared = Clue(id="waited", line="wait timeout after 6000ms", raised=True)
    found = suspects_of(node(ends, [shared]))
    assert [(one.row, one.rank) for one in found] == [("waited", None)] * 3


@pytest.mark.parametrize(
    ("code", "tail", "line"),
    [
        (1, ["step 2", "train.py: no such folder: /data", ""], "train.py: no such folder: /data"),
        (
            134,
            ["free(): double free detected in tcache 2"],
            "free(): double free detected in tcache 2",
        ),
        (1, ["that is all", "======"], "that is all"),
        (1, ["======"], None),
        (1, [], None),
        (137, ["step 2"], None),
        (1, ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "], None),
        (1, ["step 2", "mpirun noticed that process rank 1 exited"], None),
    ],
)
def test_who_ended_by_itself_and_gave_no_reason_is_quoted(
    code: int, tail: list[str], line: str | None
) -> None:
    report = ExitReport(epoch=1, exit_code=code, rank=0, tail=tail, evidence=Evidence())
    (suspect,) = suspects_of(NodeSeen(0, 100.0, report, failed=True, ranks=range(1)))
    assert suspect.row == {1: "exit_code", 134: "abort", 137: "killed"}[code]
    assert (suspect.clue.line if suspect.clue else None) == line


@pytest.mark.parametrize(
    ("tail", "name", "line"),
    [
        (["data ERROR no shard", "data INFO bye", "Exiting"], LOGGED, "data ERROR no shard"),
        (
            ["use 4 GPUs or more", " 37%|###  | 3/9", "wandb: a: b"],
            LAST_LINE,
            "use 4 GPUs or more",
        ),
        (
            ["Exception ignored in: <f>", TRACEBACK, FRAME, "KeyError: 1", "that is all"],
            LAST_LINE,
            "that is all",
        ),
        (
            ["[rank0]: sh: line 3: trainx: command not found"],
            LOGGED,
            "sh: line 3: trainx: command not found",
        ),
    ],
)
def test_an_error_near_the_end_is_quoted_rather_than_the_last_line(
    tail: list[str], name: str, line: str
) -> None:
    report = ExitReport(epoch=1, exit_code=1, rank=0, tail=tail, evidence=Evidence())
    (suspect,) = suspects_of(NodeSeen(0, 100.0, report, failed=True, ranks=range(1)))
    assert suspect.clue is not None
    assert (suspect.clue.id, suspect.clue.line) == (name, line)


def test_an_error_that_was_written_explains_an_end_only_where_nothing_else_does() -> None:
    assert one(1, [said(LOGGED, "ERROR no")]).clue == said(LOGGED, "ERROR no")
    assert one(127, [said(LOGGED, "sh: x: not found")]).row == "not_started"
    assert one(1, [said("peer_gone", last=True), said(LOGGED)]).row == "peer_gone"
    assert one(139, [said(LOGGED)]).clue is None


@pytest.mark.parametrize(
    ("code", "words", "row"),
    [
        (129, "", "launcher_ended"),
        (143, "", "launcher_ended"),
        (143, "PREEMPTED", "preempted"),
        (1, "", "exit_code"),
        (137, "", "killed"),
    ],
)
def test_a_signal_that_a_launcher_passed_on_was_meant_for_it(
    code: int, words: str, row: str
) -> None:
    told = Clue(id="launcher_ended", line="Received 1 death signal")
    assert one(code, [told], words=words).row == row
    assert one(code, [said("peer_gone"), told], words=words).row != "terminated"


@pytest.mark.parametrize(("ranks", "limit"), [([0, 1], 128), ([None], 20_000), ([1], None)])
def test_the_limit_of_a_rank_is_its_own(ranks: list[int | None], limit: float | None) -> None:
    limits = {0: 128, 1: 20_000, None: 20_000}
    facts = [
        Fact(kind=FactKind.RLIMIT, path="nofile", limit=limits[rank], rank=rank) for rank in ranks
    ]
    found = one(1, [said("open_files", last=True)], *facts).facts
    assert [fact.limit for fact in found] == ([] if limit is None else [limit])


def test_the_last_words_of_one_rank_are_not_anothers() -> None:
    ends = [RankEnd(rank=rank, exit_code=1, ended=0.0) for rank in range(2)]
    evidence = Evidence(ranks=ends)
    report = ExitReport(epoch=1, exit_code=1, rank=1, tail=["no"], evidence=evidence)
    found = suspects_of(NodeSeen(0, 100.0, report, failed=True, ranks=range(2)))
    assert [one.clue.line if one.clue else None for one in found] == [None, "no"]


def test_what_the_launcher_ended_did_not_fail() -> None:
    codes = {0: (1, 0.0), 1: (143, 0.1), 2: (137, 9.0), 3: (137, 1.0), 4: (130, 0.2)}
    ends = [RankEnd(rank=rank, exit_code=code, ended=at) for rank, (code, at) in codes.items()]
    assert [one.rank for one in suspects_of(node(ends))] == [0, 3]


def test_a_node_that_was_lost_or_ended_by_its_agent_is_told_as_such() -> None:
    assert [one.row for one in suspects_of(NodeSeen(0, lost_at=3.0))] == ["node_lost"]
    lost = NodeSeen(0, lost_at=3.0, scheduler="PREEMPTED")
    assert [one.row for one in suspects_of(lost)] == ["preempted"]
    report = ExitReport(epoch=1, exit_code=1, by_agent=True)
    assert [one.row for one in suspects_of(NodeSeen(0, 1.0, report, failed=True))] == [
        "node_failed"
    ]
    assert suspects_of(NodeSeen(0)) == suspects_of(NodeSeen(0, 1.0, report)) == []


def test_without_evidence_the_last_lines_are_read() -> None:
    tail = ["Traceback (most recent call last):", '  File "a.py", line 1', "KeyError: 1"]
    report = ExitReport(epoch=1, exit_code=1, rank=2, tail=tail)
    (suspect,) = suspects_of(NodeSeen(0, 1.0, report, failed=True, ranks=range(2, 4)).read())
    assert (suspect.row, suspect.rank) == ("exception", 2)


def test_who_was_ended_for_a_rank_that_was_never_seen_is_not_blamed() -> None:
    """It lived for less than a look takes."""
    ends = [RankEnd(rank=2, exit_code=143, ended=0.0), RankEnd(rank=3, exit_code=143, ended=0.1)]
    report = ExitReport(epoch=1, exit_code=1, evidence=Evidence(ranks=ends))
    (found,) = suspects_of(NodeSeen(0, 100.0, report, failed=True, ranks=range(4)))
    assert (found.row, found.rank, found.code) == ("exit_code", None, 1)


@pytest.mark.parametrize(("read", "named"), [(1, 1), (None, None)])
def test_who_was_ended_for_an_end_that_nobody_has_read_is_not_blamed(
    read: int | None, named: int | None
) -> None:
    """torchrun reaps a rank as soon as it has ended, and then ends the others."""
    ends = [
        RankEnd(rank=1, exit_code=read, ended=0.0),
        RankEnd(rank=2, exit_code=143, ended=0.2),
    ]
    report = ExitReport(epoch=1, exit_code=1, evidence=Evidence(ranks=ends))
    node = NodeSeen(0, 100.0, report, failed=True, ranks=range(4))
    (found,) = suspects_of(node)
    assert (found.row, found.rank, found.code) == ("exit_code", named, 1)


@pytest.mark.parametrize(
    ("row", "ranks"), [("waited", [None, None]), ("peer_gone", [0, 0]), ("exception", [0, 0])]
)
def test_beside_a_time_out_what_was_raised_may_be_of_a_rank_that_lives_on(
    row: str, ranks: list[int | None]
) -> None:
    clues = [said("exception"), said(row, last=True)]
    shared = [clue.model_copy(update={"rank": None}) for clue in clues[::-1]]
    ends = [RankEnd(rank=0, exit_code=1, ended=0.0), RankEnd(rank=1)]
    (found,) = suspects_of(node(ends, shared))
    (alone,) = suspects_of(node(ends[:1], shared))
    assert (found.row, alone.row) == ("exception", "exception")
    assert [found.rank, alone.rank] == [ranks[0], 0]


BARE = "RuntimeError: Resource temporarily unavailable"
PIDS = Fact(kind=FactKind.PIDS, path="/sys/fs/cgroup/pod", value=3, limit=64)
USER = Fact(kind=FactKind.RLIMIT, path="nproc", value=20, limit=22)
IDLE = Fact(kind=FactKind.RLIMIT, path="nproc", value=9, limit=96_364)
SPACE = Fact(kind=FactKind.RLIMIT, path="as", limit=80 << 20)


@pytest.mark.parametrize(
    ("line", "facts", "row", "shown"),
    [
        (BARE, [PIDS, USER], "threads", (PIDS,)),
        (BARE, [IDLE, USER], "threads", (USER,)),
        (
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            [USER],
            "threads",
            (USER,),
        ),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", [IDLE], "exception", ()),
        (BARE, [], "exception", ()),
        ("RuntimeError: can't start new thread", [], "threads", ()),
        ("RuntimeError: can't start new thread", [SPACE, IDLE], "threads", (SPACE, IDLE)),
        ("bash: fork: retry: Resource temporarily unavailable", [], "threads", ()),
        ("./run.sh: 2: Cannot fork", [PIDS], "threads", (PIDS,)),
    ],
)
def test_a_resource_is_named_by_what_was_counted(
    line: str, facts: list[Fact], row: str, shown: tuple[Fact, ...]
) -> None:
    found = one(1, [said("threads", line)], *facts[-1:] if facts == [IDLE, USER] else facts)
    assert (found.row, found.facts) == (row, shown)


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "job_memory"),
        ("The node was low on resource: ephemeral-storage.", "evicted"),
        ("TaintManagerEviction: Marking for deletion Pod d/p", "evicted"),
    ],
)
def test_what_a_scheduler_says_is_quoted_where_a_rank_has_said_nothing(
    words: str, row: str
) -> None:
    for code in (137, 1):
        told = one(code, words=words)
        assert told.clue is not None
        assert (told.row, told.clue.line, told.proof) == (row, words, Proof.FACT)
    assert one(1, [said("exception")], words=words).row == "exception"


def test_what_a_rank_wrote_well_after_a_warning_is_why_it_ended() -> None:
    warned = said(
        "import_error", "tensorboard is not used: No module named 'tensorboard'", at=-20.0
    )
    error = said(LOGGED, "ERROR giving up", at=-1.0)
    assert one(1, [warned, error]).clue == error
    assert one(1, [warned]).row == "import_error"
    failed = said("import_error", "ERROR No module named 'x'", at=-20.0)
    assert one(1, [failed, error]).row == "import_error"
