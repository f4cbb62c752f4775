"""The kubernetes profile with the real kubectl, against an API server that behaves.

The pods are made up: what this shows is that kubectl takes our manifests and prints what the
profile reads, with no permission but those of the shipped Role.
"""

from __future__ import annotations

import copy
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.plan import Submission
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import NothingSubmitted, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState
from tests.kubernetes.api import QUOTA, Cluster, Refused, serving
from tests.schedulers.fakes.kubernetes import filled
from tests.support.bed import join_text
from tests.support.kubernetes_specs import UGLY, documents, expected, shipped, worker_run

pytestmark = [pytest.mark.schedulers("kubectl"), pytest.mark.timeout(120)]

NAME = "rdzv-12e4567890-1-1"
POD = f"{NAME}-x7k2p"
UNSCHEDULED = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."


@dataclass
class Ground:
    """A cluster, and what a launcher on it has."""

    cluster: Cluster
    folder: Path
    environ: dict[str, str]

    def scheduler(self) -> ProfileScheduler:
        """A scheduler as a launcher makes it; each call is another launcher's."""
        context = SchedulerContext(self.folder / "submissions", self.environ)
        made = scheduler_entry("kubernetes").make(context)
        assert isinstance(made, ProfileScheduler)
        made.looks, made.try_again_seconds = (0.0,), 0.0
        return made

    async def submit(self, run: Submission | None = None) -> str:
        """Submit a worker run."""
        return await self.scheduler().submit(run or worker_run(), join_text())

    async def describe(self) -> Description:
        """What is said of it now."""
        return await self.scheduler().describe(worker_run(), NAME)

    def kubectl(self, *words: str) -> str:
        """What the real command prints."""
        argv = ["kubectl", *words]
        return subprocess.run(
            argv, env=self.environ, check=True, capture_output=True, text=True
        ).stdout


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """An empty cluster, in which a launcher may do what the shipped Role lets it do."""
    rules = next(found for found in shipped("launcher.yaml") if found["kind"] == "Role")["rules"]
    cluster = Cluster(rules)
    with serving(cluster, tmp_path) as config:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "KUBECONFIG": str(config),
            "LC_ALL": "C.UTF-8",
        }
        yield Ground(cluster, tmp_path, environ)


def sent(cluster: Cluster) -> list[Any]:
    """Secret and Job as they came, without what the cluster has added."""
    found = []
    for resource in ("secrets", "jobs"):
        made = copy.deepcopy(cluster.objects[resource, NAME])
        for key in ("namespace", "uid", "creationTimestamp"):
            made["metadata"].pop(key, None)
        for key in ("status", "made"):
            made.pop(key, None)
        made["spec"].pop("selector", None) if "spec" in made else None
        found.append(made)
    return found


# ---- submitting -----------------------------------------------------------------------------


async def test_what_kubectl_sends_is_the_whole_spec_with_every_value_as_it_was(
    ground: Ground,
) -> None:
    run = worker_run(UGLY, image=UGLY[1], passed=UGLY, run="0755")
    assert await ground.submit(run) == NAME
    rendered = documents(ground.scheduler().render(run, join_text()))
    script = rendered[0]["stringData"]["run.sh"]
    assert rendered == expected(script, join_text(), image=UGLY[1], run="0755")
    assert sent(ground.cluster) == rendered


async def test_a_worker_run_whose_answer_was_lost_is_found_and_not_made_twice(
    ground: Ground,
) -> None:
    ground.cluster.lost = True
    assert await ground.submit() == NAME
    assert ground.cluster.names("jobs") == [NAME]
    assert ground.cluster.names("secrets") == [NAME]


async def test_a_server_that_fails_once_is_asked_again(ground: Ground) -> None:
    failures = [500]

    def fail_once(verb: str, resource: str) -> None:
        if (verb, resource) == ("create", "jobs") and failures:
            raise Refused(failures.pop(), "InternalError", "etcdserver: request timed out")

    ground.cluster.trouble = fail_once
    assert await ground.submit() == NAME
    assert ground.cluster.names("jobs") == [NAME]


QUOTA_OF_JOBS = 'jobs.batch "x" is forbidden: exceeded quota: jobs, used: 4, limited: 4'
NO_IMAGE = {"field": "spec.template.spec.containers[0].image", "message": "Required value"}


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refused(403, "Forbidden", QUOTA_OF_JOBS), QUOTA_OF_JOBS),
        (
            Refused(422, "Invalid", "no", {"kind": "Job", "name": "x", "causes": [NO_IMAGE]}),
            'The Job "x" is invalid: spec.template.spec.containers[0].image: Required value',
        ),
    ],
)
async def test_a_refused_worker_run_is_an_error_at_once_with_kubernetes_own_words(
    ground: Ground, refusal: Refused, words: str
) -> None:
    def refuse(verb: str, resource: str) -> None:
        if (verb, resource) == ("create", "jobs"):
            raise refusal

    ground.cluster.trouble = refuse
    with pytest.raises(NothingSubmitted) as caught:
        await ground.submit()
    assert words in caught.value.message
    assert join_text() not in caught.value.message + caught.value.hint
    assert ground.cluster.names("jobs") == []
    assert ground.cluster.names("secrets") == []


async def test_a_launcher_without_the_permission_is_told_which_one_is_missing(
    ground: Ground,
) -> None:
    ground.cluster.rules = [r for r in ground.cluster.rules if "jobs" not in r["resources"]]
    with pytest.raises(SchedulerError) as caught:
        await ground.submit()
    assert 'cannot create resource "jobs"' in caught.value.message
    assert "the Role of specs/kubernetes/launcher.yaml" in caught.value.hint


# ---- describing -----------------------------------------------------------------------------


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
    ready = {"type": "Ready", "status": "False", "message": "containers with unready status: [w]"}
    scheduled = {"type": "PodScheduled", "status": "True"}
    conditions = [scheduled, ready]
    return {"phase": "Pending", "conditions": conditions, "containerStatuses": [{"state": state}]}


def ended(phase: str, reason: str, code: int) -> dict[str, Any]:
    state = {"terminated": {"reason": reason, "exitCode": code}}
    return {"phase": phase, "containerStatuses": [{"state": state}]}


@pytest.mark.parametrize(
    ("pod", "state", "detail"),
    [
        (waiting("ContainerCreating"), SlotState.SUBMITTED, "gpu-17 ContainerCreating"),
        (
            waiting("ErrImagePull", "not found"),
            SlotState.SUBMITTED,
            "gpu-17 ErrImagePull not found",
        ),
        (
            waiting("ImagePullBackOff", 'Back-off pulling image "x"'),
            SlotState.FAILED,
            'gpu-17 ImagePullBackOff Back-off pulling image "x"',
        ),
        ({"phase": "Running"}, SlotState.RUNNING, "gpu-17"),
        (ended("Succeeded", "Completed", 0), SlotState.ENDED, "Completed, exit code 0"),
        (ended("Failed", "OOMKilled", 137), SlotState.FAILED, "OOMKilled, exit code 137"),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on resource: memory"},
            SlotState.FAILED,
            "Failed: gpu-17 Evicted low on resource: memory",
        ),
        ({"phase": "Unknown"}, SlotState.UNKNOWN, "Unknown: gpu-17"),
    ],
)
async def test_what_a_pod_is_about_becomes_a_state_and_its_words(
    ground: Ground, pod: dict[str, Any], state: SlotState, detail: str
) -> None:
    await ground.submit()
    assert await ground.describe() == Description(SlotState.QUEUED, UNSCHEDULED)
    ground.cluster.pod(**pod)
    found = await ground.describe()
    assert found.state is state
    assert detail in found.detail


async def test_a_job_that_gets_no_pod_waits_with_the_quotas_words(ground: Ground) -> None:
    ground.cluster.quota = 0
    await ground.submit()
    words = "Error creating: " + QUOTA.replace("POD", POD)
    assert await ground.describe() == Description(SlotState.QUEUED, words)
    scheduler = ground.scheduler()
    await scheduler.cancel(worker_run(), NAME, grace_seconds=0.0)
    assert ground.cluster.names("events") != []  # they outlive what they tell of
    assert (await scheduler.describe(worker_run(), NAME)).state is SlotState.ENDED
    ground.cluster.objects.clear()
    ground.cluster.quota = 1
    await ground.submit()
    del ground.cluster.objects["pods", POD]
    assert await ground.describe() == Description(SlotState.QUEUED, "no pod was made yet")


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ('pods "POD" is forbidden: violates PodSecurity "restricted:latest"', SlotState.FAILED),
        ('admission webhook "w" denied the request: no such team', SlotState.FAILED),
        ("etcdserver: request timed out", SlotState.SUBMITTED),
    ],
)
async def test_a_pod_that_may_not_be_is_no_queue(
    ground: Ground, why: str, state: SlotState
) -> None:
    ground.cluster.quota, ground.cluster.why = 0, why
    await ground.submit()
    found = await ground.describe()
    assert found.state is state
    assert "Error creating: " + why.replace("POD", POD) in found.detail


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("Failed", SlotState.FAILED),
        ("Complete", SlotState.ENDED),
        ("Suspended", SlotState.QUEUED),
    ],
)
async def test_a_job_whose_pod_is_gone_speaks_for_itself(
    ground: Ground, condition: str, state: SlotState
) -> None:
    await ground.submit()
    del ground.cluster.objects["pods", POD]
    words = "Job has reached the specified backoff limit"
    conditions = [{"type": condition, "status": "True", "message": words}]
    ground.cluster.objects["jobs", NAME]["status"] = {"conditions": conditions}
    found = await ground.describe()
    assert found.state is state
    assert words in found.detail


async def test_one_answer_tells_each_worker_runs_state_apart(ground: Ground) -> None:
    scheduler = ground.scheduler()
    runs = [worker_run(slot=slot) for slot in (1, 11)]
    handles = [await scheduler.submit(run, join_text()) for run in runs]
    ground.cluster.objects["pods", f"{handles[1]}-x7k2p"]["status"] = {"phase": "Running"}
    found = [await scheduler.describe(*pair) for pair in zip(runs, handles, strict=True)]
    assert [each.state for each in found] == [SlotState.QUEUED, SlotState.RUNNING]


async def test_a_server_that_does_not_answer_says_nothing_of_a_worker_run(ground: Ground) -> None:
    await ground.submit()

    def fail(verb: str, resource: str) -> None:
        if resource == "pods":
            raise Refused(500, "InternalError", "etcdserver: request timed out")

    ground.cluster.trouble = fail
    with pytest.raises(SchedulerError, match="etcdserver: request timed out"):
        await ground.describe()


# ---- ending ---------------------------------------------------------------------------------


async def test_a_cancelled_worker_run_is_over_when_its_pod_is(ground: Ground) -> None:
    await ground.submit()
    ground.cluster.pod(phase="Running")
    scheduler = ground.scheduler()
    await scheduler.cancel(worker_run(), NAME, grace_seconds=12.0)
    assert ground.cluster.names("secrets") == []
    assert (await scheduler.describe(worker_run(), NAME)).state is SlotState.RUNNING
    assert await scheduler.find(worker_run()) is None
    ground.cluster.end_grace(POD)
    assert ground.cluster.objects == {}
    await scheduler.cancel(worker_run(), NAME, grace_seconds=0.0)
    scheduler = ground.scheduler()
    await scheduler.cancel(worker_run(), NAME, grace_seconds=0.0)
    assert (await scheduler.describe(worker_run(), NAME)).state is SlotState.ENDED


async def test_a_life_needs_exactly_the_permissions_of_the_role(ground: Ground) -> None:
    await ground.submit()
    ground.cluster.pod(phase="Running")
    scheduler = ground.scheduler()
    await scheduler.find(worker_run())
    await scheduler.describe(worker_run(), NAME)
    for follow in (False, True):
        lines = scheduler.logs(worker_run(), NAME, lines=2, follow=follow)
        assert [line async for line in lines] == [f"line {number} of {POD}" for number in (3, 4)]
    await scheduler.cancel(worker_run(), NAME, grace_seconds=0.0)
    allowed = {
        (verb, resource)
        for rule in ground.cluster.rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ground.cluster.asked == allowed


async def test_a_slow_server_is_waited_for(ground: Ground) -> None:
    answers = threading.Event()

    def wait(verb: str, resource: str) -> None:
        answers.wait(30)

    ground.cluster.trouble = wait
    timer = threading.Timer(1.0, answers.set)
    timer.start()
    assert await ground.submit() == NAME
    timer.join()


# ---- the fake of the everyday tests ---------------------------------------------------------


async def test_the_fake_kubectl_prints_what_the_real_one_prints(ground: Ground) -> None:
    await ground.submit()
    script = ground.scheduler().profile.describe.argv[2]
    templates = [piece.split("'")[0] for piece in script.split("--output=jsonpath='")[1:]]
    assert len(templates) == 3
    for pod in ({"phase": "Pending"}, waiting("ErrImagePull", "no"), ended("Failed", "Error", 1)):
        ground.cluster.pod(**pod)
        for template in templates:
            words = ("get", "jobs,pods", f"--output=jsonpath={template}")
            items = [
                {"kind": kind} | ground.cluster.objects[resource, name]
                for resource, name, kind in (("jobs", NAME, "Job"), ("pods", POD, "Pod"))
            ]
            assert ground.kubectl(*words) == filled(template, {"kind": "List", "items": items})
