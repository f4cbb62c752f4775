"""Tells what an exception or last error says of other ranks, where no row knows it. Pure.

Who speaks decides, not what is said: a library with which ranks communicate tells of all of them,
unless it names this rank's own devices, files or interfaces.
"""

from __future__ import annotations

import re

from rendezvous.cause.lines import is_warning
from rendezvous.cause.table import read

COMMUNICATION = "communication"
UNLIKE = "ranks_differ"

_OF_THE_PROGRAM = re.compile(
    r"(?:\S+\.)?(?:(?:\w*(?:Key|Index|Lookup|Attribute|Type|Value|Name|Assertion|Import|Syntax"
    r"|ModuleNotFound|NotImplemented|ZeroDivision|Indentation|Recursion|Overflow|UnboundLocal"
    r"|Unicode\w*|Memory|FileNotFound|FileExists|Permission|IsADirectory|NotADirectory|Decode"
    r"|Validation|Config\w*)|Argument)Error|Stop(?:Async)?Iteration)\b"
)
"""Exceptions of a program's own code and files, whichever library has raised them."""
_WORDS = read("words.toml")
_OF_ITSELF = re.compile("|".join(_WORDS["of_itself"]))
_TOGETHER, _WAITED, _LOST, _UNLIKE, _NAMED = (
    re.compile("(?i)" + "|".join(_WORDS[key]))
    for key in ("together", "waited", "lost", "unlike", "named")
)
_PATH = re.compile(r"(?:^|\s|')/(?!job:|[^\s:]*\.(?:c|cc|cpp|cuh?|hp?p?|py)\b)[\w./@-]+")
"""A file that is none of a program's source."""
_LIBRARIES = re.compile(
    r"/(?:(?:site|dist)-packages/distributed/\w+|torch/nn/parallel/distributed"
    r"|torch/distributed/(?:distributed_c10d|c10d_logger|rendezvous|utils|nn/functional|rpc/\w+"
    r"|_functional_collectives|algorithms/.*|elastic/.*)|torch_npu/distributed/.*"
    r"|deepspeed/comm/.*|horovod/.*|mpi4(?:py|jax)/.*|ray/(?!data/).*|jax/_src/distributed"
    r"|paddle/distributed/.*|accelerate/utils/operations|xgboost/(?:collective|tracker|rabit)"
    r"|mindspore/communication/.*|oneccl_bindings\w*/.*|jax/experimental/multihost_utils)\.pyx?$"
)
"""Files of libraries with which ranks communicate."""
_NODE = re.compile(r"\[\[.*?(?:\]\]|$)")
"""A node of TensorFlow's graph: the device of which it is need not have failed."""
_ANOTHER = re.compile(
    r"\b[Rr]ank[ :=#\[]{0,2}(\d{1,9})\b|/job:(?!\w*local)\w+/replica:\d+/task:(\d{1,9})\b"
)


def is_of_itself(line: str) -> bool:
    """Return whether an exception is of a program's own code, devices, files or services."""
    forms = (_OF_ITSELF, _PATH)
    return _OF_THE_PROGRAM.match(line) is not None or any(form.search(line) for form in forms)


def has_waited(words: str) -> bool:
    """Return whether they are of a rank that waited for another one, or has lost it."""
    found = _WAITED.search(words) or _LOST.search(words)
    return found is not None and not is_of_itself(words)


def is_together(words: str) -> bool:
    """Return whether they name something that ranks do together."""
    return _TOGETHER.search(words) is not None


def is_of_ranks(file: str) -> bool:
    """Return whether a file is of a library with which ranks communicate."""
    return _LIBRARIES.search(file) is not None


def ranks_in(line: str) -> set[int]:
    """Return the ranks, or the tasks of TensorFlow and JAX, that it names."""
    found = _ANOTHER.finditer(_NODE.sub("", line))
    return {int(match[1] or match[2]) for match in found}


def row_of_others(line: str, innermost: str, rank: int | None) -> str | None:
    """The row of who speaks of what ranks do together, or of another one; None: of itself.

    Args:
        line: An exception, or a last error.
        innermost: The file of the innermost frame, where that is not of the user's own code.
        rank: Who says it.
    """
    if is_warning(line):
        return None
    named = ranks_in(line)
    together = named - {rank} or _TOGETHER.search(line) or is_of_ranks(innermost)
    if together and _UNLIKE.search(line):
        return UNLIKE
    if named - {rank} or _NAMED.search(line):
        return COMMUNICATION
    if _OF_ITSELF.search(line):
        return None
    if _LOST.search(line):
        return COMMUNICATION
    waited = _WAITED.search(line)
    if not (together and waited) and _OF_THE_PROGRAM.match(line):
        return None
    if not waited and _PATH.search(line):
        return None
    return COMMUNICATION if together or waited else None
