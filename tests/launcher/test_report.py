"""`rdzv report`: what is in its archive, and what is not."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from launcher.show.report import Report, report_of
from rendezvous.wire.errors import UsageError
from tests.support.launching import launch, rdzv

SECRETS = ("word-of-a-password", "value-of-a-key", "of-the-environment", "sk-abcdefgh12345678")
ENVIRON = {
    "PATH": "/usr/bin",
    "HF_TOKEN": "of-the-environment",
    "RDZV_JOIN_TIMEOUT": "60",
    "RDZV_TOKEN": "of-the-group",
    "NCCL_DEBUG": "INFO",
    "MASTER_ADDR": "10.0.0.1",
    "PWD": "/",
    "PIN_AUTH": "1234",
    "RDZV_ENV": "HF_TOKEN=another-word ODD=x",
    "RDZV_SET": "PARTITION=gpu",
    "ODD": "a-secret-of-the-run",
}


def report(root: Path, run: str | None = None, environ: dict[str, str] = ENVIRON) -> Report:
    return report_of(root, run, environ, lambda: print("L01 ok, by of-the-environment"))


def test_a_report_of_a_failed_run_has_what_helps_and_no_secret(tmp_path: Path) -> None:
    state, archive = tmp_path / "state", tmp_path / "r.tgz"
    archive.touch(0o644)
    # Who fails first ends the other one, which may not have printed anything by then.
    both = f"cd {tmp_path}; touch at-$NODE_RANK; until [ -e at-0 -a -e at-1 ]; do sleep 0.02; done"
    script = f'echo "api_key=value-of-a-key sk-abcdefgh12345678 of step $1"; {both}; exit 3'
    command = ["sh", "-c", script, "--password", "word-of-a-password"]
    options = ("--nnodes", "2", "--framework", "command")
    outcome = launch(state, *options, command=command, run="bad")
    assert outcome.code == 3, outcome.err
    said = rdzv(state, "report", "bad", "--output", str(archive))
    assert said.startswith(f"rdzv: wrote {archive} (")
    assert "read it before you send it" in said
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as packed:
        texts = {
            member.name.removeprefix("rdzv-report-bad/"): packed.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in packed
        }
    assert [line.split()[0] for line in said.splitlines()[1:-1]] == list(texts)
    assert list(texts) == [
        *("versions.txt", "environment.txt", "doctor.txt"),
        *("launch.json", "result.json", "report.json", "status.json"),
        *("logs/registry.log", "logs/agent-0.log", "logs/agent-1.log"),
        *("last-words/epoch-1/node-0.txt", "last-words/epoch-1/node-1.txt"),
    ]
    assert "rdzv 0" in texts["versions.txt"]
    assert "L01" in texts["doctor.txt"]
    assert json.loads(texts["result.json"])["exit_code"] == 3
    assert json.loads(texts["launch.json"])["options"]["command"][-1] == "(hidden)"
    own = (state / "bad" / "secret").read_text().strip()
    whole = "".join(texts.values())
    assert [secret for secret in (*SECRETS, own) if secret in whole] == []
    assert texts["last-words/epoch-1/node-0.txt"] == "api_key=(hidden) (hidden) of step (hidden)\n"


def test_without_a_run_it_is_about_this_machine_alone(tmp_path: Path) -> None:
    found = report(tmp_path / "nothing here")
    assert found.name == "rdzv-report"
    assert list(found.texts) == ["versions.txt", "environment.txt", "doctor.txt"]
    assert found.texts["doctor.txt"] == "L01 ok, by (hidden)\n"
    assert found.texts["environment.txt"].splitlines() == [
        *("HF_TOKEN", "MASTER_ADDR", "NCCL_DEBUG=INFO", "ODD", "PATH", "PIN_AUTH", "PWD"),
        *("RDZV_ENV", "RDZV_JOIN_TIMEOUT=60", "RDZV_SET", "RDZV_TOKEN"),
    ]


def test_a_secret_of_the_run_is_hidden_whatever_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "r" / "logs").mkdir(parents=True)
    (tmp_path / "r" / "logs" / "agent-0.log").write_text("it got a-secret-of-the-run\n")
    assert "a-secret-of-the-run" in report(tmp_path, "r").texts["logs/agent-0.log"]
    (tmp_path / "r" / "run.toml").write_text('[env]\nLR = "3"\nODD = {secret = true}\n')
    assert report(tmp_path, "r").texts["logs/agent-0.log"] == "it got (hidden)\n"


def test_a_run_that_was_not_launched_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run 'bad' was launched here"):
        report(tmp_path, "bad")


def test_it_is_bounded_and_takes_a_folder_as_it_finds_it(tmp_path: Path) -> None:
    run = tmp_path / "odd"
    (run / "logs").mkdir(parents=True)
    (run / "launch.json").write_text("{")
    (run / "result.json").write_text(json.dumps("x" * (2 << 20)))
    (run / "former-launches.jsonl").write_text(
        '{"a": 1}\n{"password": "p", "words": ["--key", "k"]}\n'
    )
    long = "".join(f"line {number} {'x' * 1000}\n" for number in range(1000))
    for slot in range(70):
        (run / "logs" / f"agent-{slot}.log").write_text(long if slot == 69 else "\n")
    found = report(tmp_path, "odd").texts
    assert found["launch.json"] == "left out: it is not JSON\n"
    assert found["result.json"] == "left out: it has 2,097,154 bytes\n"
    assert found["former-launches.jsonl"].split() == [
        *("{", '"a":', "1", "}"),
        *("{", '"password":', '"(hidden)",', '"words":', "[", '"--key",', '"(hidden)"', "]", "}"),
    ]
    assert len([name for name in found if name.startswith("logs/")]) == 64
    lines = found["logs/agent-69.log"].splitlines()
    assert (lines[-1].split()[1], len(lines)) == ("999", 64)
    assert all(line.startswith("line ") for line in lines)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file or directory") as caught:
        report(tmp_path).write(tmp_path / "no folder" / "r.tgz")
    assert caught.value.hint == "choose another --output FILE"
