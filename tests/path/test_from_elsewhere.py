"""Runs of a standing registry, from another machine than the one that launched them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from rendezvous.talk.join_string import RegistryString
from rendezvous.wire.errors import ExitCode
from tests.path.test_local import COMMAND, WAIT, standing_registry
from tests.support.launching import RDZV, Launched, Outcome, environment, launching, shell
from tests.support.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

PRINTS = "echo hello from $NODE_RANK"


class Somebody:
    """A person with a credential, and nothing else of any run."""

    def __init__(self, folder: Path, credential: str) -> None:
        self.folder, self.credential = folder, credential

    @property
    def url(self) -> str:
        """Where the registry is, without its credential."""
        place = RegistryString.parse(self.credential).place
        return "https://{}:{}".format(*place.host_and_port(place.addresses[0]))

    def begin(self, *words: str) -> subprocess.Popen[str]:
        env, pipe = environment(self.folder, RDZV_REGISTRY=self.credential), subprocess.PIPE
        return subprocess.Popen([RDZV, *words], env=env, stdout=pipe, stderr=pipe, text=True)

    def rdzv(self, *words: str) -> Outcome:
        env = environment(self.folder, RDZV_REGISTRY=self.credential)
        done = subprocess.run([RDZV, *words], env=env, capture_output=True, text=True, timeout=30)
        return Outcome(done.returncode, done.stdout, done.stderr)


class Teams:
    """Two teams of one registry; each has a run."""

    def __init__(self, folder: Path, operator: dict[str, str], runs: list[Launched]) -> None:
        self.runs = runs
        self.vision, self.audio = (
            Somebody(folder / f"{name}-elsewhere", self._add(folder, operator, name))
            for name in ("vision", "audio")
        )

    @staticmethod
    def _add(folder: Path, operator: dict[str, str], name: str) -> str:
        add = [RDZV, "tenant", "add", name, "--prefix", f"{name}-"]
        return subprocess.check_output(add, env=environment(folder) | operator, text=True).strip()


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Teams]:
    folder = tmp_path_factory.mktemp("teams")
    with standing_registry(folder / "serve") as operator:
        made = Teams(folder, operator, [])
        command, options = shell(f"trap 'exit 0' TERM; {PRINTS}; {WAIT}"), ("--nnodes", "2")

        def begin(run: str, who: Somebody) -> Launched:
            env = {"RDZV_REGISTRY": who.credential}
            how = launching(folder / run, *options, *COMMAND, command=command, run=run, env=env)
            return undo.enter_context(how)

        with ExitStack() as undo:
            made.runs = [begin("vision-a", made.vision), begin("audio-a", made.audio)]
            for run, who in (("vision-a", made.vision), ("audio-a", made.audio)):
                until(partial(runs, who, run))
            yield made


def runs(who: Somebody, run: str) -> bool:
    return "running on" in who.rdzv("status", run).out


def test_a_team_sees_its_own_runs_from_any_machine_and_no_other(teams: Teams) -> None:
    for words in (["status", "vision-a"], ["status", "vision-a", "--url", teams.vision.url]):
        shown = teams.vision.rdzv(*words)
        assert shown.code == 0, shown.err
        assert "running on 2 nodes" in shown.out
    told = json.loads(teams.vision.rdzv("status", "vision-a", "--json").out)
    assert (told["run"], told["phase"], len(told["slots"])) == ("vision-a", "running", 2)
    for who, own in ((teams.vision, "vision-a"), (teams.audio, "audio-a")):
        listed = who.rdzv("status", "--url", who.url)
        assert [line.split()[0] for line in listed.out.splitlines()[1:]] == [own]
        found = json.loads(who.rdzv("status", "--url", who.url, "--json").out)
        assert [run["run"] for run in found] == [own]
    assert teams.vision.rdzv("status").out.startswith("no runs in ")  # those of that machine
    for words in (["status"], ["logs"], ["cancel"]):
        refused = teams.audio.rdzv(*words, "vision-a")
        assert refused.code == ExitCode.REFUSED
        sentence = "there is no run 'vision-a' here, or it is not yours, and it was not launched on"
        assert sentence in " ".join(refused.err.split())
        assert f"'rdzv status --url {teams.audio.url}' lists the runs there" in refused.err
    refused = teams.vision.rdzv("status", "vision-a", "--checks")
    assert refused.code == ExitCode.USAGE
    assert "--checks shows are on the machine that launched the run" in refused.err


def test_its_nodes_send_what_the_programs_print(teams: Teams) -> None:
    until(lambda: "hello from 1" in teams.vision.rdzv("logs", "vision-a").out)
    shown = teams.vision.rdzv("logs", "vision-a", "--node", "0", "--url", teams.vision.url)
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "hello from 0")
    assert teams.vision.rdzv("logs", "vision-a", "--grep", "nothing").out.count("hello") == 0


def test_it_cancels_its_run_and_learns_how_that_ended(teams: Teams) -> None:
    until(lambda: "hello from 1" in teams.audio.rdzv("logs", "audio-a").out)
    following = teams.audio.begin("logs", "audio-a", "--follow")
    assert following.stdout is not None
    while "hello" not in following.stdout.readline():
        assert following.poll() is None
    done = teams.audio.rdzv("cancel", "audio-a", "--reason", "enough")
    assert done.code == 0, done.err
    assert re.search("was cancelled with 'rdzv cancel' by \\S+ on \\S+: enough\n", done.out)
    outcome = teams.runs[1].finish()
    assert outcome.code == ExitCode.CANCELLED
    assert re.search("was cancelled with 'rdzv cancel' by \\S+ on \\S+: enough", outcome.last_line)
    assert "End of the log" in following.communicate(timeout=30)[1]
    assert following.returncode == 0
    status = json.loads(teams.audio.rdzv("status", "audio-a", "--json").out)
    assert status["result"]["status"] == "cancelled"
    over = teams.audio.rdzv("logs", "audio-a")
    assert over.code == ExitCode.USAGE
    assert "no node sends its output any more" in over.err
    assert teams.vision.rdzv("status", "vision-a").code == 0


def test_without_a_credential_or_an_address_it_is_said_what_is_needed(teams: Teams) -> None:
    nobody = Somebody(teams.vision.folder, "")
    refused = nobody.rdzv("status", "vision-a", "--url", teams.vision.url)
    assert refused.code == ExitCode.USAGE
    assert "--url needs RDZV_REGISTRY" in refused.err
    wrong = teams.vision.rdzv("status", "vision-a", "--url", "ftp://x")
    assert wrong.code == ExitCode.USAGE
    assert "which is not an address of a registry" in wrong.err
