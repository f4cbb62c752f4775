"""One target under atheris, in a process forked from one that has loaded all that is fuzzed."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import atheris

_WATCHED = ["rendezvous", "worker", "launcher", "features", "yaml"]
with redirect_stderr(StringIO()), atheris.instrument_imports(include=_WATCHED):  # it names each
    from tests.attack.fuzz.targets import TARGETS as TARGETS
    from tests.attack.fuzz.targets import Target
    from tests.support.mangle import mangled_text

SLOWEST_SECONDS = 10
MOST_MEGABYTES = 512
LONGEST_BYTES = 16_384


def main(name: str, folder: Path, seconds: int, seed: int, inputs: list[str]) -> None:
    """Fuzz until the time is over or a contract is broken; ends the process.

    The folder gets the corpus, what is said, and the input that broke a contract. The same seed
    tries the same inputs, but for a target that reads a clock; 0 stands for any seed. With inputs,
    only these are tried.
    """
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    target = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number, example in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(example)
    words = folder / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    options = [
        f"-seed={seed}",
        f"-max_total_time={seconds}",
        f"-timeout={SLOWEST_SECONDS}",
        f"-rss_limit_mb={MOST_MEGABYTES}",
        f"-max_len={LONGEST_BYTES}",
        *([f"-dict={words}"] if target.words else []),
        f"-artifact_prefix={folder}/broken-",
        "-print_final_stats=1",
    ]
    check = _kept(target.check, folder / "broken-contract")
    atheris.Setup([sys.argv[0], *options, *(inputs or [str(corpus)])], check, **_ways(target))
    atheris.Fuzz()


def _kept(check: Callable[[bytes], None], file: Path) -> Callable[[bytes], None]:
    """The same, which leaves the input that broke the contract in a file.

    libFuzzer writes one too, but at the process's own exit, which one of multiprocessing has not.
    """

    def checked(data: bytes) -> None:
        try:
            check(data)
        except BaseException:
            file.write_bytes(data)
            raise

    return checked


def _ways(target: Target) -> dict[str, object]:
    """How inputs are changed: blindly, and JSON part by part half of the time."""

    def change(data: bytes, size: int, seed: int) -> bytes:
        dice = random.Random(seed)
        changed = mangled_text(dice, data) if dice.random() < 0.5 else data
        if changed == data or len(changed) > size:
            changed = bytes(atheris.Mutate(data, size))
        return changed

    return {"custom_mutator": change} if target.is_json else {}


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word.encode())
