"""The kubernetes profile with the real kubectl, against an API server that behaves.

The pods are made up: what this shows is that kubectl takes our manifests and prints what the
profile reads, with no permission but those of the shipped Role.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.plan.plan import Submission
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import NothingSubmitted, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState
from tests.kubernetes.api import QUOTA, UNSCHEDULED, Cluster, Object, Refused, serving
from tests.support.bed import join_text
from tests.support.vendor_specs import NAME, UGLY, rendered, rules, worker_run

pytestmark = [pytest.mark.schedulers("kubectl"), pytest.mark.timeout(120)]

POD = f"{NAME}-x7k2p"
BUSY = "etcdserver: request timed out"


class Ground:
    """A cluster, and what a launcher on it has."""

    def __init__(self, cluster: Cluster, folder: Path, config: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        self._environ["KUBECONFIG"] = str(config)

    def scheduler(self) -> ProfileScheduler:
        """A scheduler as a launcher makes it; each call is another launcher's."""
        context = SchedulerContext(self._folder / "submissions", self._environ)
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

    def pod(self, **status: Any) -> None:
        """Let the pod be in this state."""
        pod = self.cluster.objects["pods", POD]
        pod["status"], pod["spec"]["nodeName"] = status, "gpu-17"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """An empty cluster, in which a launcher may do what the shipped Role lets it do."""
    cluster = Cluster(rules())
    with serving(cluster, tmp_path) as config:
        yield Ground(cluster, tmp_path, config)


def sent(cluster: Cluster) -> list[Any]:
    """Secret and Job as they came, without what the cluster has added."""
    secret, job = (copy.deepcopy(cluster.objects[kind, NAME]) for kind in ("secrets", "jobs"))
    for found in (secret, job):
        for key in ("namespace", "uid", "creationTimestamp"):
            found["metadata"].pop(key, None)
    del job["status"], job["spec"]["selector"]
    return [secret, job]


# ---- submitting -----------------------------------------------------------------------------


async def test_what_kubectl_sends_is_the_whole_spec_with_every_value_as_it_was(
    ground: Ground, tmp_path: Path
) -> None:
    run = worker_run(UGLY, image=UGLY[1], passed=UGLY, run="0755")
    assert await ground.submit(run) == NAME
    assert sent(ground.cluster) == list(yaml.safe_load_all(rendered(tmp_path, run)))


@pytest.mark.parametrize("lost", [True, False])
async def test_a_lost_answer_or_one_failure_of_the_server_makes_one_worker_run(
    ground: Ground, lost: bool
) -> None:
    ground.cluster.lost = lost
    ground.cluster.fails["create", "jobs"] = [] if lost else [Refused(500, "InternalError", BUSY)]
    assert await ground.submit() == NAME
    assert ground.cluster.names("jobs") == ground.cluster.names("secrets") == [NAME]


QUOTA_OF_JOBS = 'jobs.batch "x" is forbidden: exceeded quota: jobs, used: 4, limited: 4'
FIELD = "spec.template.spec.containers[0].image"
NO_IMAGE = {"field": FIELD, "message": "Required value"}
INVALID = {"kind": "Job", "name": "x", "causes": [NO_IMAGE]}


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refused(403, "Forbidden", QUOTA_OF_JOBS), QUOTA_OF_JOBS),
        (Refused(422, "Invalid", "no", INVALID), f'"x" is invalid: {FIELD}: Required value'),
    ],
)
async def test_a_refused_worker_run_is_an_error_at_once_with_kubernetes_own_words(
    ground: Ground, refusal: Refused, words: str
) -> None:
    ground.cluster.fails["create", "jobs"] = [refusal]
    with pytest.raises(NothingSubmitted) as caught:
        await ground.submit()
    assert words in caught.value.message
    assert join_text() not in caught.value.message + caught.value.hint
    assert ground.cluster.objects == {}


async def test_a_launcher_without_permission_is_told_which_one_is_missing(ground: Ground) -> None:
    ground.cluster.rules = [r for r in ground.cluster.rules if "jobs" not in r["resources"]]
    with pytest.raises(SchedulerError) as caught:
        await ground.submit()
    assert 'cannot create resource "jobs"' in caught.value.message
    assert "the Role of specs/kubernetes/launcher.yaml" in caught.value.hint


# ---- describing -----------------------------------------------------------------------------


def waiting(reason: str, message: str) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    ready = {"type": "Ready", "status": "False", "message": "containers with unready status: [w]"}
    conditions = [{"type": "PodScheduled", "status": "True"}, ready]
    return {"phase": "Pending", "conditions": conditions, "containerStatuses": [{"state": state}]}


def ended(phase: str, reason: str, code: int) -> Object:
    state = {"terminated": {"reason": reason, "exitCode": code}}
    return {"phase": phase, "containerStatuses": [{"state": state}]}


TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "low on resource: memory"}


@pytest.mark.parametrize(
    ("pod", "state", "detail"),
    [
        ({"phase": "Running", "conditions": [TARGET]}, SlotState.RUNNING, "PreemptionByScheduler"),
        (waiting("ErrImagePull", "no"), SlotState.SUBMITTED, "gpu-17 ErrImagePull no"),
        (waiting("ImagePullBackOff", "x"), SlotState.FAILED, "gpu-17 ImagePullBackOff x"),
        ({"phase": "Running"}, SlotState.RUNNING, "gpu-17"),
        (ended("Succeeded", "Completed", 0), SlotState.ENDED, "Completed, exit code 0"),
        (ended("Failed", "OOMKilled", 137), SlotState.FAILED, "OOMKilled, exit code 137"),
        (EVICTED, SlotState.FAILED, "Failed: gpu-17 Evicted low on resource: memory"),
        ({"phase": "Unknown"}, SlotState.UNKNOWN, "Unknown: gpu-17"),
    ],
)
async def test_what_a_pod_is_about_becomes_a_state_and_its_words(
    ground: Ground, pod: Object, state: SlotState, detail: str
) -> None:
    await ground.submit()
    ground.pod(**pod)
    found = await ground.describe()
    assert found.state is state
    assert detail in found.detail
    assert found.host == "gpu-17"
    assert found.preempted == (pod is EVICTED or TARGET in pod.get("conditions", ()))


@pytest.mark.parametrize(
    ("why", "state"),
    [
        (QUOTA, SlotState.QUEUED),
        ('pods "POD" is forbidden: violates PodSecurity "restricted:latest"', SlotState.FAILED),
        ('admission webhook "w" denied the request: no such team', SlotState.FAILED),
        (BUSY, SlotState.SUBMITTED),
    ],
)
async def test_only_a_quota_of_no_pod_is_a_queue(
    ground: Ground, why: str, state: SlotState
) -> None:
    ground.cluster.no_pod = why
    await ground.submit()
    found = await ground.describe()
    assert found.state is state
    assert "Error creating: " + why.replace("POD", POD) in found.detail


WORDS = "Job has reached the specified backoff limit"


@pytest.mark.parametrize(
    ("condition", "state", "words"),
    [
        ("Failed", SlotState.FAILED, WORDS),
        ("Complete", SlotState.ENDED, WORDS),
        ("Suspended", SlotState.QUEUED, WORDS),
        ("", SlotState.QUEUED, "no pod has been created yet"),
    ],
)
async def test_a_job_without_a_pod_speaks_for_itself(
    ground: Ground, condition: str, state: SlotState, words: str
) -> None:
    await ground.submit()
    del ground.cluster.objects["pods", POD]
    conditions = [{"type": condition, "status": "True", "message": WORDS}] if condition else []
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
    assert found[0] == Description(SlotState.QUEUED, UNSCHEDULED)
    assert found[1].state is SlotState.RUNNING


async def test_a_server_that_does_not_answer_says_nothing_of_a_worker_run(ground: Ground) -> None:
    await ground.submit()
    ground.cluster.fails["list", "pods"] = [Refused(500, "InternalError", BUSY) for _ in range(9)]
    with pytest.raises(SchedulerError, match=BUSY):
        await ground.describe()


# ---- ending ---------------------------------------------------------------------------------


async def test_a_life_needs_the_permissions_of_the_role_and_ends_with_the_pod(
    ground: Ground,
) -> None:
    await ground.submit()
    ground.pod(phase="Running")
    scheduler = ground.scheduler()
    assert await scheduler.find(worker_run()) == NAME
    for follow in (False, True):
        lines = scheduler.logs(worker_run(), NAME, lines=2, follow=follow)
        assert [line async for line in lines] == [f"line {number} of {POD}" for number in (3, 4)]
    await scheduler.cancel(worker_run(), NAME, grace_seconds=12.0)
    assert ground.cluster.names("secrets") == []
    assert (await scheduler.describe(worker_run(), NAME)).state is SlotState.RUNNING
    assert await scheduler.find(worker_run()) is None
    ground.cluster.end_grace(POD)
    assert ground.cluster.objects == {}
    await scheduler.cancel(worker_run(), NAME, grace_seconds=0.0)
    assert (await scheduler.describe(worker_run(), NAME)).state is SlotState.ENDED
    allowed = {
        (verb, resource)
        for rule in ground.cluster.rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ground.cluster.asked == allowed
