"""Facts of the nodes' machines for people: what each is, and how busy it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from features.machines.wire import GpuSample, MachineSample, NodeMachine
from launcher.show.hardware import OF_ITS_GROUP, gpu_words, rdma_words
from rendezvous.wire.node import Facts
from rendezvous.wire.words import duration_text, node_name

_UNITS = (("TiB", 10 << 40, 1 << 40), ("GiB", 1 << 30, 1 << 30), ("MiB", 0, 1 << 20))
"""From which amount on each is used, and how large it is."""
_NAMES_AT = 2
TEXT_AT = 20
"""The column of a line at which the text begins."""
_NOT_REPORTED = "not reported: its program has not started, or --stall is off"


def machine_facts(one: NodeMachine) -> list[list[str]]:
    """Facts of a machine, each as a name and a text."""
    facts, sample = one.facts, one.sample
    found = [("CPUs", _cpus(facts, sample))]
    if sample is not None:
        found += [("memory", _memory(sample)), *_disks(sample)]
    found.append(("GPUs", gpu_words(facts) or "none"))
    if sample is not None:
        found += _gpus_in_use(sample)
    found += [("RDMA", words) for words in rdma_words(facts.rdma)]
    found.append(("software", _software(facts)))
    age = f"{duration_text(one.age)} ago" if sample is not None else _NOT_REPORTED
    found.append(("as of", age))
    return [[name, words] for name, words in found if words]


def machine_lines(one: NodeMachine) -> Iterator[str]:
    """The same as lines, below one that says whose it is."""
    yield node_name(one.node, one.hostname, one.slot)
    for name, words in machine_facts(one):
        yield f"{'':{_NAMES_AT}}{name:{TEXT_AT - _NAMES_AT}}{words}"


def _cpus(facts: Facts, sample: MachineSample | None) -> str:
    load = f"load {sample.load:g}" if sample is not None else ""
    return ", ".join(filter(None, (str(facts.cpus or ""), load)))


def _memory(sample: MachineSample) -> str:
    if sample.memory_limit:
        used = _of(sample.memory_used, sample.memory_limit)
        return f"{used} {OF_ITS_GROUP}"
    return _of(sample.memory_used, sample.memory_total)


def _disks(sample: MachineSample) -> list[tuple[str, str]]:
    found = [
        ("disk of the logs", _of(sample.disk_free, sample.disk_total)),
        ("shared memory", _of(sample.shm_free, sample.shm_total)),
    ]
    return [(name, f"{words} free") for name, words in found if words]


def _gpus_in_use(sample: MachineSample) -> Iterator[tuple[str, str]]:
    """The one that stands out of each kind: of eight alike GPUs it says what eight numbers do."""
    gpus = sample.gpus
    if sized := [gpu for gpu in gpus if gpu.memory_total]:
        fullest = max(sized, key=lambda gpu: gpu.memory_used / gpu.memory_total)
        yield "GPU memory", _of(fullest.memory_used, fullest.memory_total) + _which(fullest, sized)
    if shares := {gpu.index: gpu.utilisation for gpu in gpus if gpu.utilisation is not None}:
        low, high = min(shares.values()), max(shares.values())
        yield "GPU utilisation", f"{high} %" if low == high else f"{low} to {high} %"
    if heats := {gpu.index: gpu.temperature for gpu in gpus if gpu.temperature is not None}:
        hottest = max(heats, key=lambda index: heats[index])
        more = f" at most (GPU {hottest})" if len(heats) > 1 else ""
        yield "GPU temperature", f"{heats[hottest]} °C{more}"
    for gpu in gpus:
        if gpu.problem:
            yield "GPU trouble", f"GPU {gpu.index}: {gpu.problem}"
    if sample.gpu_problem:
        yield "GPU trouble", sample.gpu_problem


def _which(gpu: GpuSample, gpus: Sequence[GpuSample]) -> str:
    return f" on the fullest (GPU {gpu.index})" if len(gpus) > 1 else ""


def _software(facts: Facts) -> str:
    known = {
        "torch": facts.torch_version,
        "CUDA": facts.cuda_version,
        "NCCL": facts.nccl_version,
        "driver": facts.driver_version,
        "Python": facts.python_version,
        "rdzv": facts.rdzv_version,
    }
    return ", ".join(f"{name} {version}" for name, version in known.items() if version)


def _of(part: int, whole: int) -> str:
    """`12.3 of 64 GiB`, `48 GiB of 20 TiB`; empty where the whole is not known."""
    if not whole:
        return ""
    (some, unit), (all_, unit_of_all) = _amount(part), _amount(whole)
    own = f" {unit}" if part and unit != unit_of_all else ""
    return f"{some}{own} of {all_} {unit_of_all}"


def _amount(size: int) -> tuple[str, str]:
    """A number, and its unit."""
    unit, one = next((name, one) for name, least, one in _UNITS if size >= least)
    amount = size / one
    return f"{amount:.0f}" if amount >= 100 else f"{amount:.1f}".removesuffix(".0"), unit
