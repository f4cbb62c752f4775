"""What every shipped profile calls, with what and when, and what it reads in its tool's answers.

Two worker runs of each, whose slots, generations, ids, lines and times differ. Who changes a
profile writes the file anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.plan.plan import HIDDEN, Submission
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.command import Said
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.profile import ProfileScheduler
from rendezvous.wire.errors import RdzvError
from tests.support.bed import SHIPPED, join_text, worker_run
from tests.support.courses import lines_in, one_line, write_down
from tests.support.virtual_time import run_virtually

KNOWN = Path(__file__).with_name("shipped.txt")
FOLDER = "/state/llama/submissions"
Answer = tuple[int | None, str, str]
SECRETS = {"RDZV_TOKEN": "secret", "RDZV_NNODES": "9"}
OUTER = {
    "SLURM_JOB_ID": "7",
    "SLURM_HOSTFILE": "/hosts",
    "SLURM_CLUSTERS": "b",
    "SBATCH_WAIT": "1",
    "SBATCH_PARTITION": "gpu",
}
ENVIRON = {"PATH": "/bin", "HOME": "/home/ada"} | SECRETS | OUTER
SKEWED = {
    "docker": {"ENGINE": "podman", "OPTIONS": "--gpus all -v '/a b:/c'"},
    "slurm": {"SBATCH": "--partition=gpu --comment='a b'"},
    "ssh": {"SSH_OPTIONS": "-F c.conf -J gate", "HOST": "ada@n7:2222"},
    "vessl": {"PROJECT": "--project other"},
}
"""What is set, beside what a profile needs."""
IDS: dict[str, Callable[[Submission], tuple[str, str]]] = {
    "docker": lambda run: ("0f" * 32, f"Pulling\n{'0f' * 32}\n"),
    "slurm": lambda run: ("4711", "4711;b\n"),
    "ssh": lambda run: ("88-9123", "motd\n\nrdzv: sh has started\nrdzv: worker run 88-9123\n"),
    "vessl": lambda run: ("36936", "[12:30:45] Check your Run at: https://a/b/runs/36936 \n"),
    "kubernetes": lambda run: (run.name, f"secret/{run.name}\njob.batch/{run.name}\n"),
    "azureml": lambda run: (run.name, f"{run.name}\n"),
}
"""The id of a worker run, and what the tool prints when it is made."""
STATES: dict[str, str] = {
    "docker": "<state>|exit code 3, out of memory",
    "slurm": "4710|FAILED|(x)\n<id>|<state>|(Nodes  required)\n4712|FAILED|None",
    "ssh": "rdzv: sh has started\n<state>|pid 88 of  all",
    "vessl": " 1 another batch failed x\n <id>  <name>  batch  <state>  2026-09-05 12:30:45  ",
    "kubernetes": (
        "<name>x|NoPod|no\n<name>|NoPod|no pod has been created yet\n<name>|Complete|\n"
        "<name>|<state>|n7  Evicted all, exit code 3"
    ),
    "azureml": "<state>",
}
"""How the tool tells a state."""
GONE: dict[str, Answer] = {
    "docker": (1, "", "Error: No such object: x"),
    "slurm": (0, "", ""),
    "ssh": (0, "rdzv: sh has started\nnone", ""),
    "vessl": (1, "", "Sentry is disabled\nVesslApiException: NotFound (404): no"),
    "kubernetes": (0, "other|NoPod|", ""),
    "azureml": (1, "", "The run <id> was not found"),
}
ANSWERS: dict[str, tuple[Answer, ...]] = {
    "docker": (
        (125, "", "docker: Error response from daemon: pull access denied for x"),
        (1, "", "Cannot connect to the Docker daemon"),
        (127, "", "no such file"),
    ),
    "slurm": (
        (1, "", "sbatch: error: invalid partition specified: x"),
        (1, "", "sbatch: error: Batch job submission failed: Job violates accounting policy"),
        (1, "", "sbatch: error: Requested node configuration is not available"),
        (1, "", "sbatch: error: Invalid node name specified in job request"),
        (1, "", "sbatch: fatal: Could not establish a configuration source"),
        (1, "", "sbatch: error: Socket timed out on send/recv operation"),
        (1, "", "sbatch: error: what?"),
    ),
    "ssh": (
        (255, "", "Host key verification failed."),
        (255, "", "bo@n7: Permission denied (publickey)."),
        (255, "", "ssh: Could not resolve hostname n7: Name or service not known"),
        (255, "", "ssh: Could not resolve hostname n7: Temporary failure"),
        (255, "", "ssh: connect to host n7 port 2222: Connection refused"),
        (255, "", "kex_exchange_identification: read: Connection reset by peer"),
        (127, "\nrdzv: sh has started", "there is no command 'rdzv'"),
        (1, "\nrdzv: sh has started", "sh: write error: No space left on device"),
        (1, "\nrdzv: sh has started", "mkdir: cannot create directory"),
        (3, "Welcome", ""),
        (None, "Welcome", ""),
        (0, "\nrdzv: sh has started", ""),
        (2, "\nrdzv: sh has started", "sh: 3: Syntax error: end of file"),
    ),
    "vessl": (
        (0, "[1] Field image does not exist!", "Organization: acme\n\nProject: llama\n"),
        (1, "", "Traceback (most recent call last):\n  File x\nInvalid access token"),
        (1, "", "Invalid organization: acme"),
        (1, "", "Invalid project: llama"),
        (1, "The given cluster does not exist!", ""),
        (1, "", "Traceback (most recent call last):\nModuleNotFoundError: No module"),
        (1, "", "VesslApiException: (503): later"),
        (1, "", "VesslApiException: (409): taken"),
    ),
    "kubernetes": (
        (1, "", "Unable to connect to the server: dial tcp"),
        (1, "", 'jobs.batch is forbidden: User "x" cannot create resource "jobs"'),
        (1, "", 'The Job "x" is invalid: spec'),
        (1, "", "Error from server (InternalError): x"),
        (1, "", 'Error from server: admission webhook "x" denied the request: no'),
    ),
    "azureml": (
        (1, "", "Please run 'az login' to setup account."),
        (1, "", "(AuthorizationFailed) The client"),
        (2, "", "the following arguments are required: --resource-group/-g"),
        (1, "", "Operation returned status 503"),
        (1, "", "what?"),
    ),
}
"""What the tool says when it makes no worker run."""
FOUND = {
    "slurm": "x\n  <id> \n",
    "vessl": " 7 another batch\n  <id>  <name>  batch",
    "kubernetes": "<name>||",
}
"""How the tool lists it, where that is not as when it was made."""
LEAVING = {"kubernetes": "<name>|2026-11-01T00:00:00Z|"}
"""How it lists what is being deleted."""
NO_REASON = {"slurm": "<id>|RUNNING|(None)", "ssh": "running|", "vessl": "<id> <name> b running x"}
"""How it tells that there is none."""


class Course:
    """A scheduler of a shipped profile whose tool says what the course wants.

    Attributes:
        lines: Each command, and what came of what was asked.
        says: What the tool says to a command, which is the first one of its words or not.
    """

    says: Callable[[bool, list[str]], Answer]

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(random, "random", lambda: 0.5)
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.chdir(folder)
        self.name, self.folder = name, folder / "submissions"
        self.lines: list[str] = []
        self.scheduler = self.made()
        self._first: list[str] = []

    def made(self) -> ProfileScheduler:
        """The scheduler of a launch of its own."""
        made = scheduler_entry(self.name).make(SchedulerContext(self.folder, ENVIRON))
        assert isinstance(made, ProfileScheduler)
        self.runner, made._runner = made._runner, cast(Any, _Runner(self))
        return made

    def run_of(self, slot: int) -> Submission:
        """A worker run; no two numbers of it are the same one."""
        run = worker_run(self.name, slot, slot + 4, logs=f"/logs/{slot}")
        more: dict[str, Any] = SKEWED.get(self.name, {}) if slot == 2 else {}
        variables = run.variables | more | {"CWD": "/srv/job"}
        return Submission(run.slot, run.generation, run.name, variables, run.source, run.template)

    def add(self, words: object) -> None:
        """One line, in which the launch's folder has one name."""
        self.lines.append(one_line(words).replace(str(self.folder), FOLDER))

    def files(self) -> list[Path]:
        """What lies in the launch's folder."""
        return sorted(self.folder.glob("*"))

    async def run(
        self, argv: list[str], *, timeout_seconds: float, stdin: str | None = None
    ) -> Said:
        """In the place of the runner."""
        given = f" < {len(stdin.splitlines())} lines" if stdin else ""
        self.add(f"$ {argv} within {timeout_seconds:g} s{given}")
        self._first = self._first or argv
        return Said(*self.says(argv == self._first, argv))

    def lines_of(self, argv: list[str]) -> AsyncGenerator[str, None]:
        """Lines of the log, as the tool prints them."""

        async def shown() -> AsyncGenerator[str, None]:
            self.add(f"$ {argv}")
            for line in ("before", "rdzv: sh has started", "[12:30:45.1] loss 3", "last"):
                yield line

        return shown()

    async def tell(
        self, what: Coroutine[Any, Any, Any], says: Callable[[bool, list[str]], Answer]
    ) -> None:
        """Tell what came of it, where the tool answers so."""
        self.says, self._first = says, []
        try:
            found = await what
        except RdzvError as exc:
            final = " for ever" if getattr(exc, "final", False) else ""
            final += " no host" if getattr(exc, "no_host", False) else ""
            self.add(f"! {type(exc).__name__}{final} {exc.message} [{exc.hint}]")
        else:
            if found is not None and not isinstance(found, str):
                found = f"{found.state} {found.detail!r}{' preempted' * found.preempted}"
            self.add(f"= {found}")


class _Runner:
    """In the place of what runs commands."""

    def __init__(self, course: Course) -> None:
        self.run, self.lines = course.run, course.lines_of


def _filled(text: str, run: Submission, handle: str, state: str = "") -> str:
    for word, value in {"<id>": handle, "<name>": run.name, "<state>": state}.items():
        text = text.replace(word, value)
    return text


def _always(code: int | None, out: str = "", err: str = "") -> Callable[..., Answer]:
    return lambda *_: (code, out, err)


def _gone(course: Course, run: Submission, handle: str) -> Answer:
    code, out, err = GONE[course.name]
    return code, out, _filled(err, run, handle)


async def _of_one(course: Course, slot: int) -> None:
    """Submitted, found, described, read, ended: by whom, and once more."""
    scheduler, run = course.scheduler, course.run_of(slot)
    handle, said = IDS[course.name](run)
    course.add(f"{slot}: {scheduler.prepare(run, HIDDEN).partition(chr(10))[0]}")
    join = join_text(slot, slot + 4)
    await course.tell(scheduler.submit(run, join), _always(0, said))
    for path in course.files():
        text, mode = path.read_text(), path.stat().st_mode & 0o777
        course.add(f"{path.name} {mode:o}, secret {text.count(join)}, name {text.count(run.name)}")
    found = FOUND.get(course.name, said)
    await course.tell(scheduler.find(run), _always(0, _filled(found, run, handle)))
    await course.tell(scheduler.find(run), _always(*_gone(course, run, run.name)))
    leaving = _filled(LEAVING.get(course.name, "what"), run, handle)
    await course.tell(scheduler.find(run), _always(0, leaving))
    await course.tell(scheduler.describe(run, handle), _always(*_gone(course, run, handle)))
    told = _filled(NO_REASON.get(course.name, "what"), run, handle)
    await course.tell(course.made().describe(run, handle), _always(0, told))
    course.add(f"by hand {scheduler.cancel_words(run, handle)}")
    course.add(f"by hand {scheduler.cancel_words(run, None)}")
    for lines, follow in ((17, False), (19, True)):
        shown = scheduler.logs(run, handle, lines=lines, follow=follow)
        course.add([line async for line in shown])
    await asyncio.sleep(100.0)
    ends = scheduler.cancel(run, handle, grace_seconds=7.25 + slot)
    await course.tell(ends, _always(0))
    gone, refused = _gone(course, run, handle), (2, "", "no way")

    def again(first: bool, _: list[str]) -> Answer:
        return refused if first and gone[0] == 0 else gone

    await course.tell(scheduler.cancel(run, handle, grace_seconds=0.0), again)
    await course.tell(scheduler.cancel(run, handle, grace_seconds=0.0), _always(*refused))
    course.add([path.name for path in course.files()])


async def _states(course: Course) -> None:
    """Tell what each word of the tool is for us; and one that it has not."""
    states, run = course.scheduler.profile.states, course.run_of(1)
    handle, _ = IDS[course.name](run)
    for word in dict.fromkeys([*(word for _, words in states for word in words), "Odd"]):
        text = _filled(STATES[course.name], run, handle, word)
        read = f" ID 1\n Status {word}\n Status reason it was Evicted\n"

        def says(_: bool, argv: list[str], *, text: str = text, read: str = read) -> Answer:
            return 0, read if "read" in argv else text, ""

        await _told_briefly(course, word, course.made().describe(run, handle), says)


async def _refusals(course: Course) -> None:
    """Tell what comes of what the tool says when it makes none; each at a launch of its own."""
    run = course.run_of(2)
    none = _gone(course, run, run.name)
    for code, out, err in ANSWERS[course.name]:
        scheduler = course.made()
        scheduler.looks = (0.0,)

        def says(first: bool, _: list[str], *, said: Answer = (code, out, err)) -> Answer:
            return said if first else none

        await _told_briefly(course, f"{code} {out!r} {err!r}", scheduler.submit(run, "j"), says)


async def _told_briefly(
    course: Course, words: str, what: Coroutine[Any, Any, Any], says: Callable[..., Answer]
) -> None:
    """Tell the number of commands, and what came of them."""
    course.lines, before = [], course.lines
    await course.tell(what, says)
    *commands, end = course.lines
    course.lines = [*before, f"{words}: {len(commands)} {end}"]


async def whole(course: Course) -> None:
    """All that its tool is asked, and what is read in its answers."""
    entry, profile = scheduler_entry(course.name), course.scheduler.profile
    course.add(f"{entry.summary}; {entry.secret}; {entry.spec}; {entry.commands}")
    course.add(f"{entry.name_length}; {sorted(entry.variables)}; {course.scheduler.poll_seconds:g}")
    course.add(f"{course.scheduler.finds} {course.scheduler.keeps_logs} {profile.at_once}")
    course.add(f"in {course.runner._cwd}: {course.runner._environ}")
    await _of_one(course, 2)
    await _states(course)
    await _refusals(course)


def _course(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    course = Course(name, folder, monkeypatch)
    run_virtually(whole(course))
    return course


@pytest.mark.parametrize("name", SHIPPED)
def test_each_profile_does_as_it_was_written_down(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _course(name, tmp_path, monkeypatch).lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    write_down(KNOWN, SHIPPED, _course)
