"""The nodes side by side: what is there twice, and what is not the same. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import attrgetter

from rendezvous.proof.findings import Property, compare_facts, hostnames_of, make_finding
from rendezvous.proof.rdma import compare_rdma
from rendezvous.wire.checks import Check, Level
from rendezvous.wire.node import MOST_COMMAND_WORDS, Finding, JoinRequest
from rendezvous.wire.words import group_name, listed

_COMPARED = attrgetter(
    *("rdzv_version", "python_version", "torch_version", "cuda_version", "nccl_version"),
    *("script_digest", "driver_version", "gpus", "gpu_models"),
)
"""Of a node's facts, what `_versions` and `_gpus` look at."""


def compare(joins: Sequence[JoinRequest], *, require_rdma: bool) -> list[Finding]:
    """The checks X01 to X06: for each property one `ok`, or what differs.

    A finding's slot is the node that is the odd one out; None where nobody is. Nodes of one image
    on equal machines are all what the first one is.
    """
    facts = [_COMPARED(join.facts) for join in joins]
    different = joins[:1] if facts == facts[:1] * len(facts) else joins
    return [
        *_duplicates(joins),
        *_versions(different),
        *_gpus(different),
        *compare_rdma(joins, required=require_rdma),
    ]


# --- COMMAND, as each node joins --------------------------------------------------------------


def first_difference(one: Sequence[str], other: Sequence[str]) -> int | None:
    """The first word, from 1, in which two COMMANDs differ by their MACs; None: in none."""
    pairs = enumerate(zip_longest(one, other), start=1)
    return next((number for number, (mine, theirs) in pairs if mine != theirs), None)


def word_text(number: int) -> str:
    """`word 5`, or what lies behind the words that are compared each for itself."""
    most = MOST_COMMAND_WORDS
    return f"word {number}" if number <= most else f"a word after word {most}"


# --- X01: the same thing twice ----------------------------------------------------------------


ONE_A_MACHINE = "ask the scheduler for one node per machine (with Slurm: sbatch --exclusive)"
"""What to try where two nodes are on one: those that pack jobs want to be told."""
_HOSTNAME = Property(
    Check.DUPLICATES,
    "hostname",
    "rdzv uses addresses and the names node-N, but NCCL treats two containers with one "
    "host and one hostname as one machine: give every node its own hostname",
)
_GPU = Property(
    Check.DUPLICATES,
    "GPU",
    f"two nodes of this run are on one machine and use the same GPUs: {ONE_A_MACHINE}, or give "
    "each its own GPUs (CUDA_VISIBLE_DEVICES)",
    "fail",
)
_GUID = Property(
    Check.DUPLICATES,
    "node GUID",
    "two adapters of one fabric with the same GUID confuse its subnet manager: set a "
    "different GUID on one of them",
    "fail",
)


def _duplicates(joins: Sequence[JoinRequest]) -> list[Finding]:
    hostnames = hostnames_of(joins)
    if all(any(c.is_loopback for c in join.candidates) for join in joins):
        return []  # one machine, on purpose
    machines = {join.facts.boot_id or str(join.slot) for join in joins}
    gpu = _GPU if len(machines) > 1 else replace(_GPU, level="warn")
    return [
        *_twice(_HOSTNAME, {j.slot: [j.hostname.lower()] for j in joins}, hostnames),
        *_twice(gpu, {j.slot: j.facts.gpu_uuids for j in joins}, hostnames),
        *_twice(_GUID, _cloned_guids(joins), hostnames),
    ]


def _twice(
    what: Property, values: Mapping[int, Sequence[str]], hostnames: Mapping[int, str]
) -> list[Finding]:
    """One finding for every set of nodes that have something in common."""
    everything = [value for own in values.values() for value in own]
    if len(set(everything)) == len(everything):
        return []
    owners = defaultdict(list)
    for slot, own in sorted(values.items()):
        for value in dict.fromkeys(own):
            owners[value].append(slot)
    together = defaultdict(list)
    for value, slots in owners.items():
        if len(slots) > 1:
            together[tuple(slots)].append(value)
    return [
        make_finding(
            what,
            f"{group_name(slots, hostnames)} have the same {what.name} {listed(shared, 2)}",
            slot=slots[-1] if len(slots) == 2 else None,
            value=listed(shared, 2),
            expected="a different one on every node",
        )
        for slots, shared in together.items()
    ]


def _cloned_guids(joins: Sequence[JoinRequest]) -> dict[int, list[str]]:
    """Of each node, the GUIDs that adapters of another machine have, too.

    Containers of one machine see the same adapters.
    """
    guids = {
        join.slot: [
            port.node_guid
            for port in join.facts.rdma
            if port.link_layer == "InfiniBand" and port.node_guid.strip("0:")
        ]
        for join in joins
    }
    boots = defaultdict(set)
    for join in joins:
        for guid in guids[join.slot]:
            boots[guid].add(join.facts.boot_id)
    return {slot: [guid for guid in own if len(boots[guid]) > 1] for slot, own in guids.items()}


# --- X02, X03: versions and GPUs --------------------------------------------------------------


_ONE_IMAGE = "use the same image, or the same environment, on all nodes"


def _versions(joins: Sequence[JoinRequest]) -> list[Finding]:
    torch = {join.facts.torch_version for join in joins} - {""}
    releases = {tuple(version.split(".")[:2]) for version in torch}
    level: Level = "fail" if len(releases) > 1 else "warn"
    fix = f"NCCL refuses a peer that has a different version: {_ONE_IMAGE}"
    # Programs without GPUs do without NCCL.
    needs_nccl = any(join.facts.gpus for join in joins)
    nccl = Property(Check.VERSIONS, "NCCL", fix, "fail" if needs_nccl else "warn")
    return [
        *compare_facts(joins, nccl, lambda f: f.nccl_version),
        *compare_facts(joins, _version("torch", level), lambda f: f.torch_version),
        *compare_facts(joins, _version("CUDA"), lambda f: f.cuda_version),
        *compare_facts(joins, _version("Python"), lambda f: f.python_version),
        *compare_facts(joins, _version("rdzv"), lambda f: f.rdzv_version),
        *compare_facts(joins, _version("entry script"), lambda f: f.script_digest[:12]),
    ]


def _version(name: str, level: Level = "warn") -> Property:
    return Property(Check.VERSIONS, name, _ONE_IMAGE, level)


def _gpus(joins: Sequence[JoinRequest]) -> list[Finding]:
    count = Property(
        Check.GPUS_ALIKE,
        "GPU count",
        "run nvidia-smi -L there: a GPU is lost or not assigned to it; if this is intended, "
        f"--skip {Check.GPUS_ALIKE.id}",
    )
    short = {j.slot for j in joins if (j.facts.gpus or 1) < j.nproc_per_node}
    model = Property(
        Check.GPUS_ALIKE, "GPU model", "the slowest GPU model limits the speed of all nodes"
    )
    driver = Property(
        Check.GPUS_ALIKE, "NVIDIA driver", "install the same driver version on all machines"
    )
    have_any = any(join.facts.gpus for join in joins)
    counts = compare_facts(joins, count, lambda f: str(f.gpus) if have_any else "")
    return [
        *(replace(f, level="fail") if _blames(f, short) else f for f in counts),
        *compare_facts(joins, model, lambda f: ", ".join(sorted(set(f.gpu_models)))),
        *compare_facts(joins, driver, lambda f: f.driver_version),
    ]


def _blames(finding: Finding, slots: Collection[int]) -> bool:
    """Whether it is about one of these nodes; what is about nobody in particular is about all."""
    return finding.level == "warn" and bool(slots) and finding.slot in (None, *slots)
