"""The dry run: the first worker run in full, of the others what differs."""

from __future__ import annotations

from pathlib import Path

from launcher.plan.plan import HIDDEN, Here, Site, Spec, make_plan
from launcher.run.preview import preview
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.local import LocalScheduler
from launcher.schedulers.manual import ManualScheduler
from launcher.settings import LaunchSettings

SCRIPT = "# <<NAME>>\nRDZV_JOIN=<<RDZV_JOIN>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>\n"
HERE = (
    "argv: [rdzv, worker, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
)


def shown(tmp_path: Path, **settings: object) -> list[str]:
    """The dry run of a launch with the manual scheduler."""
    plan = make_plan(
        LaunchSettings.model_validate({"hosts": "off", "local_node": False, **settings}),
        ["train.py", "two words"],
        {},
        Site(Spec("worker.sh", SCRIPT)),
        run="llama",
        launch_id="to-be-made",
    )
    context = SchedulerContext(tmp_path, {})
    starters = [ManualScheduler(context), ManualScheduler(context)]
    return "\n".join(preview(plan, starters)).splitlines()


def test_the_first_is_shown_in_full_and_of_the_others_what_differs(tmp_path: Path) -> None:
    head, *text = shown(tmp_path, nnodes="3", nproc_per_node="8,8,4")
    options = "--nnodes 3 --nproc-per-node 8 --hosts off"
    second = "SLOT 2, GPUS_PER_NODE 4, NODE_RANK 2, WORKER_OPTIONS (--nproc-per-node 4)"
    assert head == "# slot 0, by manual: rdzv-to-be-made-0-1"
    assert text == [
        "# rdzv-to-be-made-0-1",
        f"RDZV_JOIN={HIDDEN} rdzv worker {options} -- train.py 'two words'",
        "",
        "# slot 1, by manual: rdzv-to-be-made-1-1, as slot 0 but for SLOT 1, NODE_RANK 1",
        f"# slot 2, by manual: rdzv-to-be-made-2-1, as slot 0 but for {second}",
    ]


def test_many_slots_and_spares_are_a_line_each(tmp_path: Path) -> None:
    lines = shown(tmp_path, nnodes="64", nproc_per_node="8", spares=1)
    assert len(lines) == 4 + 64
    assert max(map(len, lines)) < 110
    assert lines[-1].endswith("1, as slot 0 but for SLOT 64, NODE_RANK 64")


def test_what_each_starter_starts_first_is_shown_in_full(tmp_path: Path) -> None:
    plan = make_plan(
        LaunchSettings(nnodes="3", hosts="off"),
        ["x"],
        {},
        Site(Spec("worker.sh", SCRIPT), here=Here(Spec("local/worker.yaml", HERE), "/logs")),
        run="llama",
        launch_id="to-be-made",
    )
    context = SchedulerContext(tmp_path, {})
    text = "\n".join(preview(plan, [LocalScheduler(context), ManualScheduler(context)]))
    assert text.count(HIDDEN) == 2
    assert "# slot 1, by manual: rdzv-to-be-made-1-1\n" in text
    assert "# slot 2, by manual: rdzv-to-be-made-2-1, as slot 1 but for" in text
