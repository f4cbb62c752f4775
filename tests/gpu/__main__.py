"""What rdzv does on a real GPU: `make test-gpu`, or `python -m tests.gpu`.

docs/internals/maintaining.md describes it. Run it by the interpreter that has torch; nothing else
is needed, and no network: rdzv is installed from the wheels of `make wheels-gpu`. All questions are
asked on one GPU within 8 minutes, each with a time limit, and the failure of one does not stop the
others.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu import findings
from tests.gpu.findings import NOTHING_TESTED, UNEXPECTED, Finding, Result
from tests.gpu.install import install
from tests.gpu.machine import Machine, look_at_machine
from tests.gpu.parts import doctor, facts, looks, nccl, warm
from tests.gpu.session import Failed, Session

ROOT = Path(__file__).parent.parent.parent
MOST_SECONDS = 430.0
"""For all questions; the last run then has 40 s to end, which makes less than 8 minutes."""
_INSTALL_SECONDS = 90.0


@dataclass(frozen=True)
class Part:
    """A question, and for how many seconds it may be asked."""

    name: str
    seconds: float
    run: Callable[[Session, dict[str, Any]], None]
    judge: Callable[[dict[str, Any], Machine], list[Finding]]


PARTS = (
    Part("doctor", 30.0, doctor.run, doctor.judge),
    Part("facts", 45.0, facts.run, facts.judge),
    Part("look", 100.0, looks.run, looks.judge),
    Part("nccl", 100.0, nccl.run, nccl.judge),
    Part("warm", 150.0, warm.run, warm.judge),
)


def main(arguments: Sequence[str]) -> int:
    """Ask all questions, write the JSON, print the summary; return the exit code."""
    options = _options(arguments)
    begun = time.monotonic()
    output: Path = options.out or Path(os.environ.get("OUT") or ROOT / "build") / "gpu.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    python = Path(sys.executable)
    machine = look_at_machine(python, dict(os.environ))
    report: dict[str, Any] = {"device": options.device, "machine": dataclasses.asdict(machine)}
    if options.device == "cuda" and machine.obstacle:
        print(machine.obstacle)
        _write(output, report | {"verdict": machine.obstacle, "parts": []})
        return NOTHING_TESTED
    folder = Path(tempfile.mkdtemp(prefix="rdzv-gpu-"))
    session = Session(options.rdzv, python, options.device, folder, begun + MOST_SECONDS)
    results: list[Result] = []
    try:
        if options.rdzv is None:
            rdzv = install(options.wheels, folder / "venv", session.environ, _INSTALL_SECONDS)
            session = dataclasses.replace(session, rdzv=rdzv)
        report["rdzv"] = session.call("--version").text.strip()
        report["checkout"] = _commit()
        report["installed_after"] = round(time.monotonic() - begun, 1)
        parts = [part for part in PARTS if part.name in (options.only or part.name)]
        for result in carry_out(parts, session, machine):
            results.append(result)
            report["parts"] = [dataclasses.asdict(one) for one in results]
            report["output"] = session.output
            _write(output, report | {"verdict": "not all parts have been carried out"})
    except Failed as problem:
        print(f"nothing was tested: {problem}")
        _write(output, report | {"verdict": f"nothing was tested: {problem}", "parts": []})
        return UNEXPECTED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    code = findings.exit_code(results)
    report["verdict"] = _verdict(options.device, code)
    report["seconds"] = round(time.monotonic() - begun, 1)
    _write(output, report)
    print("\n".join(findings.lines(results)))
    print(f"{report['verdict']}; all that was seen is in {output}")
    return code


def _verdict(device: str, code: int) -> str:
    words = "all as expected" if code == 0 else "not all is as expected"
    return words if device == "cuda" else f"rehearsal on the CPU, no GPU was tested: {words}"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: rehearse")
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--rdzv", type=Path, help="an installed rdzv, instead of the wheels")
    parser.add_argument(
        "--out", type=Path, help="the JSON; default: $OUT/gpu.json or build/gpu.json"
    )
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS])
    return parser.parse_args(arguments)


def carry_out(parts: Sequence[Part], session: Session, machine: Machine) -> Iterator[Result]:
    """Ask one question after the other; whatever happens to one is its result."""
    for part in parts:
        result, begun = Result(part.name), time.monotonic()
        if session.left:
            print(f"{part.name} ...", flush=True)
            result.state = "failed"
            try:
                part.run(session.within(part.seconds), result.seen)
                result.findings = part.judge(result.seen, machine)
                result.state = "done"
            except Failed as problem:
                result.problem = str(problem)
            except Exception as error:  # noqa: BLE001 (an answer of a form that nobody has seen yet)
                result.problem = f"{type(error).__name__}: {error}"
        result.seconds = round(time.monotonic() - begun, 2)
        yield result


def _commit() -> str:
    """The commit of the checkout, which may be newer than that of the wheel; empty without git."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def _write(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
