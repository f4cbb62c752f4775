"""The fine-tuning over emulated hosts: ZeRO 2, and its curve at rdzv and at VESSL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frameworks.environments import build_extension
from tests.frameworks.lab import EXAMPLES, launch, left_on
from tests.support.netlab import Lab

TRAIN = str(EXAMPLES / "finetune" / "train.py")
STEPS = 12
FAKE_VESSL = """\
import json, os

def log(payload, step=None):
    if step == 5:
        raise ConnectionError("the service is away")
    with open(os.environ["VESSL_TOLD"], "a") as file:
        file.write(json.dumps([os.environ["RANK"], step, payload]) + "\\n")
"""

pytestmark = [
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.frameworks("trainers", "g++"),
]


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["torchrun", "deepspeed"])
def test_every_rank_s_curve_is_at_rdzv_and_rank_0_s_at_vessl(
    framework: str, tmp_path: Path
) -> None:
    build_extension("trainers")
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "vessl.py").write_text(FAKE_VESSL)
    variables = {
        "PYTHONPATH": str(tmp_path / "python"),
        "VESSL_RUN_INITIAL_CONFIG": "/opt/vessl/config",
        "VESSL_TOLD": str(tmp_path / "told"),
    }
    command = (TRAIN, "--check", "--steps", str(STEPS), "--learning-rate", "5e-3")
    options = ("--nproc-per-node", "2,2", "--framework", framework, "--hosts", "off")
    with Lab(2, hosts_mode="debian") as lab:
        ended = launch(lab, tmp_path, "trainers", options, command, **variables)
        assert ended.code == 0, ended.told
        assert left_on(lab) == []
    assert ended.places == [(0, 4, "h0"), (1, 4, "h0"), (2, 4, "h1"), (3, 4, "h1")]
    assert len({result.value for result in ended.results}) == 1

    kept = (tmp_path / "h0" / "r" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in kept]
    for rank in range(4):
        mine = [row for row in rows if row["rank"] == rank]
        assert [row["step"] for row in mine] == list(range(1, STEPS + 1))
        assert {row["slot"] for row in mine} == {rank // 2}
        assert {*mine[-1]["values"]} == {"loss", "grad_norm", "learning_rate", "epoch"}
        assert mine[-1]["values"]["loss"] < mine[0]["values"]["loss"]

    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    first = [row for row in rows if row["rank"] == 0 and row["step"] < 5]
    assert told == [["0", row["step"], row["values"]] for row in first]  # until it failed
    assert "VESSL is not told of the metrics any more: ConnectionError" in ended.logs
