"""Failures of public threads, as the nodes of a run would have seen them: `tests/causes/public`.

An entry says who printed what, when, and who ended how, as it would be without a launcher. Here a
node's launcher ends its other ranks once one has failed, and the run tells all other nodes to stop:
what would have come after that has not happened.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from rendezvous.cause.clues import Line, find_clues, last_lines
from rendezvous.cause.facts import FactKind
from rendezvous.cause.seen import NodeSeen, ended_by_itself
from rendezvous.compat import tomllib
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.words import printable
from tests.causes.play import printed
from tests.rendezvous.cause.corpus import BEGAN, CAUSES, USUAL
from tests.rendezvous.cause.verdicts import (
    BEST_FIRST,
    STEPS,
    Expected,
    Told,
    step_told,
    told_of,
    verdict,
)
from worker.contracts.words import last_words
from worker.evidence.parsing.kernel_log import killed_in, xids_in
from worker.evidence.parsing.memory import Machine, killed_facts
from worker.evidence.parsing.telling import fact
from worker.machine.groups import Rise
from worker.program.rank_words import COLOURS

PUBLIC, SEEDS = CAUSES / "public", CAUSES / "seeds"
NOT_YET = {
    "arcface-docker-second-machine-system-error": "unknown",
    "ascend-sdma-error": "unknown",
    "autocast-rank0-only-save-checkpoint-barrier": "one of two",
    "biggraph-slurm-no-route-to-host": "unknown",
    "byteps-tensorflow-zmq-non-socket": "unknown",
    "catboost-spark-setsockopt-bad-descriptor": "unknown",
    "colossalai-auto-parallel-mesh-of-four-on-two": "unknown",
    "cosmic-pop-every-process-writes-config": "unknown",
    "cray-mpich-endpoint-in-use": "unknown",
    "cscs-pyxis-no-name-for-user": "no reason",
    "dask-xgboost-empty-labels": "unknown",
    "dcface-lightning-index-out-of-bounds": "wrong reason",
    "ddp-mpi-ucx-no-cuda-context-segfault": "unknown",
    "ddp-multinode-nccl-system-error": "unknown",
    "deepep-nvshmem-ibrc-cq-creation-segfault": "unknown",
    "deocclusion-ranks-share-gpu": "unknown",
    "detectron2-gloo-socket-ifname-unset": "unknown",
    "e3sm-libfabric-cxi-flow-control": "no reason",
    "e3sm-waitall-negative-count-ne30": "no reason",
    "easyr1-ray-memory-monitor-kill": "no reason",
    "efa-invalid-address-120-ranks": "no reason",
    "elastic-c10d-store-multiple-nics": "unknown",
    "ezpz-torchtitan-out-of-resources": "unknown",
    "fairseq-oom-batch-skipped-then-stuck": "wrong reason",
    "fairseq-oom-no-dummy-batch": "unknown",
    "flax-pjit-incompatible-shape-third-step": "unknown",
    "fsdp-optim-state-group-without-rank-zero": "unknown",
    "gaudi-ray-worker-device-acquire-failed": "unknown",
    "gaudi-two-nodes-broadcast-graph-compile": "unknown",
    "gloo-benchmark-loopback-address": "unknown",
    "gloo-device-enforce": "unknown",
    "gpt-neox-fused-kernels-not-installed-on-a-node": "wrong reason",
    "graphbolt-duplicate-gpu": "unknown",
    "gsp-rpc-timeout-xid119": "no reason",
    "guided-diffusion-pmix-out-of-resource": "no reason",
    "hccl-listen-port-taken-long-before": "unknown",
    "horovod-one-rank-other-ops": "unknown",
    "horovod-opal-shmem-select": "no reason",
    "horovod-rte-init-failed-host1": "unknown",
    "horovod-stalled-missing-rank": "wrong reason",
    "hugectr-two-nodes-ncclgroupend": "unknown",
    "ib-local-access-violation": "unknown",
    "imagenet-two-nodes-nccl-system-error": "unknown",
    "insightface-horovod-stalled-names": "no reason",
    "intel-mpi-iprobe-cannot-allocate": "unknown",
    "intelmpi-ucx-devx-qp-create-failed": "unknown",
    "invalid-mt19937-state": "unknown",
    "ipex-llm-vllm-ofi-no-provider": "unknown",
    "isaaclab-physx-device-mismatch": "unknown",
    "iterable-dataset-unequal-lengths": "no reason",
    "jax-psum-local-ordinal": "unknown",
    "json-log-s3-credentials-expired": "wrong reason",
    "k8s-flannel-connection-reset-hang": "no reason",
    "libai-oneflow-nccl-second-node": "unknown",
    "mcuformer-supernet-param-shape-differs": "unknown",
    "megatron-nan-exit-16": "unknown",
    "mindspore-ee9999-halmemalloc-device-6": "unknown",
    "monai-cachedataset-authkey-torchrun": "unknown",
    "mpi4py-irecv-truncated-then-segv": "unknown",
    "mpich-allreduce-over-two-gigabytes": "unknown",
    "mpich-init-in-docker-ofi": "no reason",
    "mumps-cxi-ptlte-not-found": "unknown",
    "mxnet-export-not-found-in-c-shell": "unknown",
    "nccl-tests-h100-ib-completion-error-4": "unknown",
    "nccl-tests-mpich-pmi-kvs-get": "no reason",
    "nccl-tests-two-servers-internal-error": "unknown",
    "nemo-aligner-ucx-unreachable": "unknown",
    "netket-mpi4jax-allreduce-truncated": "unknown",
    "neuron-eight-ranks-one-device": "unknown",
    "npu-hccl-port-already-bound": "unknown",
    "nvlink-contained-fault-jax-gb200": "unknown",
    "olcf-mpich-nic-policy-numa": "unknown",
    "olmo-dataloader-network-unreachable": "unknown",
    "omni-path-psm2-cannot-open-hfi": "wrong reason",
    "oneflow-control-server-key-twice": "unknown",
    "oneflow-dns-resolution-of-peer": "unknown",
    "oneflow-global-cast-meta-differs": "one of two",
    "oneflow-libai-second-node-nccl-init": "unknown",
    "optimum-habana-graph-compile-failed": "unknown",
    "paddle-kunlun-bkcl-send-twice": "unknown",
    "paddleclas-three-silent-ranks": "unknown",
    "psm-shared-memory-for-intra-node": "no reason",
    "pytorchjob-restarted-worker-cannot-rejoin": "unknown",
    "pyxis-task-launch-socket-timeout": "no reason",
    "qe-too-many-ranks-no-planes": "no reason",
    "ray-node-leaves-the-cluster": "unknown",
    "ray-slurm-batch-cgroup-oom": "no reason",
    "ray-train-node-preempted": "unknown",
    "ray-train-node-shut-down": "wrong reason",
    "ray-train-worker-node-died": "unknown",
    "relion-class3d-nemesis-socksm-assertion": "unknown",
    "returnn-pcie-fatal-gpu-lost": "wrong reason",
    "roce-modify-qp-no-such-device": "unknown",
    "sglang-memory-unbalanced": "unknown",
    "sglang-no-route-to-host": "unknown",
    "singularity-mpich-business-card": "unknown",
    "slurm-execve-permission-denied": "unknown",
    "slurm-job-credential-expired": "unknown",
    "stepmesh-rdma-getaddrinfo-check": "unknown",
    "t5-fsdp-rank0-reduce-others-allgather": "unknown",
    "tensorflow-grpc-https-proxy": "unknown",
    "tensorflow-worker-restarted-incarnation": "unknown",
    "tf-multiworker-collective-end-of-sequence": "unknown",
    "tf-multiworker-deadline-exceeded": "no reason",
    "tfrs-protobuf-2gb": "unknown",
    "tpu-driver-deadline-exceeded": "unknown",
    "ucc-shared-memory-between-containers": "unknown",
    "ucx-dc-remote-access-error": "no reason",
    "ucx-uar-limit-on-full-node": "unknown",
    "ucx-worker-address-not-received": "no reason",
    "verl-cublaslt-symbol": "no reason",
    "vllm-second-node-hostname-resolves-to-loopback": "unknown",
    "warpx-slingshot-undeliverable": "no reason",
    "wenet-join-rank-1-late-at-monitored-barrier": "wrong reason",
    "wrf-oml-h0ml-bounds-check-other-tasks": "no reason",
    "xid-149-nvlink-peer-abort": "no reason",
    "xla-replicate-device-acquired": "unknown",
    "xla-tpu-session-is-not-found": "unknown",
    "yolox-img-none": "unknown",
}
"""What is not told right yet, and how it is told; here it is struck out when it is."""
_SIGTERM = 128 + signal.SIGTERM
_KILLED = 128 + signal.SIGKILL
_LAST_WORDS_SECONDS = 1.0
"""What a rank's children and its task's daemon still write to its streams once it has ended."""
_LOST_SECONDS = 0.5
_MOST_LINES = 200
_WIDTH = 400


@frozen
class Way:
    """A way to launch: seconds after which a node's other ranks, and other nodes, are ended."""

    name: str
    others: float
    nodes: float


WAYS = (Way("env", 0.0, 0.3), Way("torchrun", 0.1, 2.0))
"""The quickest, and one in which most of what follows is heard of, but nobody reads how those have
ended that the launcher ended."""


@frozen
class Public:
    """One failure, and what is expected of its sentence; `table` is its file."""

    name: str
    expected: Expected
    table: dict[str, Any]

    def scored(self, way: Way) -> tuple[str, Told | None]:
        """What is said of it, and how right that is."""
        told = told_of(self.nodes(way))
        return verdict(self.expected, told), told

    def worst(self) -> tuple[str, Told | None]:
        """The same of the way in which it is least right."""
        return max(map(self.scored, WAYS), key=self._badness)

    def _badness(self, scored: tuple[str, Told | None]) -> tuple[int, int]:
        found, told = scored
        return BEST_FIRST.index(found), STEPS.index(step_told(self.expected, told))

    def nodes(self, way: Way) -> list[NodeSeen]:
        """Its nodes, as a run has seen them when it is over."""
        course = _Course(self.table, way)
        return [course.node(slot) for slot in range(self.table["nodes"])]


class _Course:
    """When everything of an entry has happened."""

    def __init__(self, table: dict[str, Any], way: Way) -> None:
        self._table = table
        self._way = way
        self._words = {one["node"]: one["text"] for one in table.get("scheduler", [])}
        self._ends = {one["rank"]: (float(one["at"]), _code(one)) for one in table.get("ended", [])}
        slots = range(table["nodes"])
        self._failed_at = {slot: at for slot in slots if (at := self._first(slot)) is not None}
        self._lost_at = {slot: self._silent_at(slot) for slot in slots if self._is_lost(slot)}
        every = [*self._failed_at.values(), *self._lost_at.values()]
        self._stop_at = min(every, default=0.0) + way.nodes

    def node(self, slot: int) -> NodeSeen:
        ranks, words = self._ranks(slot), self._words.get(slot, "")
        if (lost_at := self._lost_at.get(slot)) is not None:
            at = BEGAN + lost_at
            return NodeSeen(slot, at, None, True, ranks, at, words)
        began = self._failed_at.get(slot, self._stop_at)
        failed = began <= self._stop_at and slot in self._failed_at
        began = min(began, self._stop_at)
        found = [self._end(rank, began, failed=failed) for rank in ranks]
        report = ExitReport(epoch=1, exit_code=_SIGTERM, stopped=True)
        if failed:
            report = self._report(found)
        elif all(end.exit_code == 0 for end in found):
            return NodeSeen(slot, BEGAN + began, ExitReport(epoch=1, exit_code=0), False, ranks)
        lines = [line for end in found for line in self._lines(end, began)]
        clues = find_clues(lines)
        clues += last_lines(lines, clues)
        evidence = Evidence(ranks=found, clues=clues, facts=[*USUAL, *self._facts(slot)])
        report = report.model_copy(update={"evidence": evidence})
        return NodeSeen(slot, BEGAN + began, report, failed, ranks, None, words)

    def _report(self, ends: list[RankEnd]) -> ExitReport:
        first = ended_by_itself(ends)[0]
        own = next(end for end in ends if end.rank == first.rank)
        lines = [printable(line.text.expandtabs(4), _WIDTH) for line in self._lines(own, 0.0)]
        code = first.code if self._way.name == "env" else 1
        tail = last_words(lines)
        return ExitReport(epoch=1, exit_code=code, rank=first.rank, tail=tail)

    def _ranks(self, slot: int) -> range:
        each = self._table["each"]
        return range(slot * each, (slot + 1) * each)

    def _first(self, slot: int) -> float | None:
        """When its first rank has failed."""
        ends = [self._ends[rank] for rank in self._ranks(slot) if rank in self._ends]
        return min((at for at, code in ends if code), default=None)

    def _is_lost(self, slot: int) -> bool:
        return slot in self._words and not self._ends.keys() & {*self._ranks(slot)}

    def _silent_at(self, slot: int) -> float:
        said = [one["at"] for one in self._table["said"] if one["rank"] in self._ranks(slot)]
        return float(max(said, default=0.0)) + _LOST_SECONDS

    def _end(self, rank: int, began: float, *, failed: bool) -> RankEnd:
        at, code = self._ends.get(rank, (None, None))
        until = began + self._way.others if failed else self._stop_at
        if at is not None and at <= until:
            return RankEnd(rank=rank, exit_code=code, ended=at - began)
        if failed:
            code = _SIGTERM if self._way.name == "env" else None
            return RankEnd(rank=rank, exit_code=code, ended=self._way.others + 0.01)
        return RankEnd(rank=rank, state="S")

    def _lines(self, end: RankEnd, began: float) -> list[Line]:
        ended_at, _ = self._ends.get(end.rank, (None, None))
        until = began + end.ended if end.ended is not None else self._stop_at
        if ended_at is not None and end.ended is not None and end.exit_code not in (_SIGTERM, None):
            until = ended_at + _LAST_WORDS_SECONDS
        said = [one for one in self._table["said"] if one["rank"] == end.rank]
        said = [one for one in said if one["at"] <= until]
        found: list[Line] = []
        rests = dict.fromkeys(("stdout", "stderr"), (0.0, ""))
        for one in sorted(said, key=lambda one: float(one["at"])):
            at, stream = one["at"] - began, one["stream"]
            *whole, rest = (rests[stream][1] + printed(one)).split("\n")
            found += [_line(text, end.rank, at, stream) for text in whole]
            rests[stream] = at, rest
        found += [_line(rest, end.rank, at, name) for name, (at, rest) in rests.items() if rest]
        return sorted(found, key=lambda line: line.at or 0.0)[-_MOST_LINES:]

    def _facts(self, slot: int) -> list[Fact]:
        """What the node's look makes of the kernel's lines."""
        lines = [one["text"] for one in self._table.get("kernel", []) if one["node"] == slot]
        killed = killed_in(lines)
        own = [r for r in self._ranks(slot) if self._ends.get(r, (0, 0))[1] == _KILLED]
        ranks = {one.pid: rank for one, rank in zip(killed, own, strict=False)}
        in_group = sum(one.in_group for one in killed)
        rises = [Rise("/job", in_group, 64 << 30)] if in_group else []
        machine = Machine(len(killed), 512 << 30)
        xids = [fact(FactKind.KERNEL, words=xid.line) for xid in xids_in(lines)]
        return [*killed_facts(rises, machine, killed, ranks), *xids]


def _code(one: dict[str, Any]) -> int:
    return int(one["code"]) if "code" in one else 128 + signal.Signals[one["signal"]]


def _line(text: str, rank: int, at: float, stream: str) -> Line:
    """One line as a node keeps it: the last state of a bar of progress, without colours."""
    text = COLOURS.sub("", text.rstrip("\r").rpartition("\r")[2])
    return Line(text, rank, at, stream=stream)


def entries_in(folder: Path) -> list[Public]:
    """All of a folder."""
    return [_entry(path) for path in sorted(folder.glob("*.toml"))]


def _entry(path: Path) -> Public:
    table = tomllib.loads(path.read_text())
    keys = ("each", "between", "certain", "step", "never")
    says = (table["cause"],) if table["cause"] else ()
    more = {key: table[key] for key in keys}
    return Public(path.stem, Expected(blamed=tuple(table["blamed"]), says=says, **more), table)
