"""Tells what an exception or last error says of other ranks, where no row knows it. Pure.

Who speaks decides, not what is said: a library with which ranks communicate tells of all of them,
unless it names this rank's own devices, files or interfaces.
"""

from __future__ import annotations

import re

from rendezvous.cause.lines import is_warning

COMMUNICATION = "communication"
UNLIKE = "ranks_differ"

_OF_THE_PROGRAM = re.compile(
    r"(?:\S+\.)?(?:(?:\w*(?:Key|Index|Lookup|Attribute|Type|Value|Name|Assertion|Import|Syntax"
    r"|ModuleNotFound|NotImplemented|ZeroDivision|Indentation|Recursion|Overflow|UnboundLocal"
    r"|Unicode\w*|Memory|FileNotFound|FileExists|Permission|IsADirectory|NotADirectory|Decode"
    r"|Validation|Config\w*)|Argument)Error|Stop(?:Async)?Iteration)\b"
)
"""Exceptions of a program's own code and files, whichever library has raised them."""
_OF_ITSELF = re.compile(
    r"(?<!unhandled )(?i:cuda|hip|driver) (?:failure|error)|\bcu(?:DNN|BLAS|FFT|SPARSE|SOLVER)"
    r"|(?:\b[Nn]o|n')t (?:supported|compiled|permitted|available|found|installed|built|implemented)"
    r"|must be (?:called|configured|set)|[Uu]nsupported|\brequire[sd]\b|Failed to start|doesn't"
    r"|\b(?:does|do) not support\b|\bwithout \w+ support|\bCannot use\b|\bFailed to open\b"
    r"|\b[Pp]ermission denied|\b[Tt]oo many open files|\b[Cc]annot allocate|\binvalid root rank"
    r"|\b(?:has|have|was|is) not (?:been )?initialized|\bis (?:not (?:a )?valid|invalid)\b"
    r"|\b[Ii]nvalid (?:root|rank|value|pointer|device|MPI type)\b|\bbefore \w*[Ii]nit"
    r"|\b[Nn]o (?:active|usable|available|device|provider)\b|\bonly be called once"
    r"|\balready in use\b|\bOOM\b|[Oo]ut of (?:memory|resources)|\bECC\b|\bis not? set\b"
    r"|(?:Unable to|[Cc]ould(?: not|n't)|[Cc]an't) (?:find|resolve|open)|\bsynapse\b|[Nn]o support for"
    r"|INTERNAL ASSERT FAILED|\b[Ii]nvalid argument\b|No such |[Rr]eal path"
    r"|server socket has failed|DataLoader|subprocess\.|\bMPI_A(?:bort|BORT)\b"
    r"|\b(?i:https?|url|wandb|mlflow|comet|download\w*|s3)\b|\b(?:requests|botocore)\."
    r"|\b(?i:api) (?i:key|error)"
)
"""Words even of such a library for a rank's own devices, files and services."""
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
_TOGETHER = re.compile(
    r"(?i)\ball_?reduce|\ball_?gather|\breduce_?scatter|\ball_?to_?all|\bbarrier|process ?group"
    r"|\bcommunicator|\bcollective|\bwatchdog|\brendezvous|\bheartbeat|\bpeers?\b|\bhandshak"
    r"|\w*CCL\b|\bnccl\w+|\bhccl\w+|\bEI00\d\d\b|\bc10d|\bgloo\b|\bhorovod|\bcoordinat(?:or|ion)"
    r"|\b(?:MPI|P?MPI_\w+|MPID\w+|PMIX|PRTE|ORTE|OPAL|UC[CXSTP]|OFI)\b|\bfi_\w+|\btcp_?store"
    r"|\w*nvshmem|\b(?:libfabric|rdma_\w+|ibv_\w+|mlx[45]|poll_cq|[CT]L_\w+|_?pmi_\w+|\w*kvs_\w+)\b"
    r"|\bCC(?:L_(?:ERROR|WARN)|OM)\b|\[(?:mpiexec|proxy:[\d:]+)@|\bmpirun_rsh\b|\bmpispawn"
    r"|\bremote (?:address|side|end|access|endpoint)\b|\babnormal nodes?\b|\bNETWORK_"
    r"|\w*(?:distributed|collective|communicat|transport|tensorpipe|socket|network)\w*"
    r"(?:/[\w/.-]+)?\.(?:cc|cpp|cu|hp?p?):\d|/(?:mpi\w*|nemesis|netmod|btl|ucx|ofi)/\S+\.[ch]\b"
    r"|\bDist(?:Backend|Network|Store)Error|(?<![/\w])(?:g?rpc(?![/.\w])|rpc_\w+)"
    r"|distributed service"
    r"|\b(?:Unavailable|Aborted|Cancelled|DeadlineExceeded)Error\b|\bStatusCode\."
    r"|\b(?-i:UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED)\b|\bsynchroniz(?:e|ing|ation)\b"
    r"|\b(?:actor|worker|executor|engine|task|object)\w*"
    r"(?:d(?:ie[ds]|ead)|lost|killed|crashed|unavailable)|\b(?:KilledWorker|LostWorker|CommClosed)"
    r"|\bworkers? (?:\S+ ){0,3}(?:d(?:ie[ds]|ead)|lost|killed)\b"
    r"|\b(?:other|another|remote|all|any|some|each|every|between|across|among) (?:\w+ )?"
    r"(?:ranks?|workers?|nodes?|hosts?|actors?|tasks?|replicas?|devices|gpus?|processes|learners?"
    r"|trainers?|executors?)\b"
)
"""Words of what ranks do together."""
_WAITED = re.compile(
    r"(?i)EOFError$|\w*(?:timeout|timedout)\w*(?::|$)|\btime[ds]?[ -]?out(?:ed)?\b"
    r"|\bafter \d+ (?:retries|attempts)|\bmax_?(?:num_)?retr|\bhang detected|\bis stuck\b"
    r"|\b(?:did not|didn't|never|no) (?:receive|get|answer|respon|repl)\w*"
    r"|\bWaitFor[A-Z]\w*\(|\bwait_(?:for_)?\w+\("
    r"|\b(?:connect\w* to|reach|contact) (?:rank|worker|peer|node|host)\b"
)
"""Words of a rank that waited for another one, or has not reached it."""
_LOST = re.compile(
    r"(?i)broken pipe|connection (?:was |is )?(?:reset|closed|aborted|lost|refused)"
    r"|caused connection abort"
    r"|closed by (?:the )?(?:peer|remote)|\bEOF (?:from|in violation|received)|socket closed"
    r"|(?<!\d\] transport )endpoint (?:is not connected|shutdown)|no route to host|host is down"
    r"|network is (?:down|unreachable)|\bE(?:CONN[A-Z]+|PIPE|TIMEDOUT|(?:HOST|NET)UNREACH)\b"
    r"|\b(?:recv|send)\w*(?:\(\))? (?:error|failed)|(?:not|n't) respond\w*"
    r"|\blost (?:some|a|the|its) \w+|\bFailed devices\b|\bleft during\b|\bdisassociat|\bFORCE STOP\b"
    r"|\b(?:failed|unable|could(?: not|n't)|can(?:not|'t)) (?:to )?(?:be )?connect(?!\w* to endpoint)"
    r"|\bnot connected to\b"
    r"|\bfailed to (?:send|receive|recv)\b|\bnot reachable\b|\bunreachable\b"
    r"|\bCancell?ed: |\[_Derived_\]|\b(?:unrespons|disconnect)\w+|\b(?:channel|session|stream|transport)s?"
    r" (?:was |is |has been )?(?:closed|expired|lost|removed|reset)"
)
"""Words of a rank that lost what it was connected to: whatever exception holds them."""
_UNLIKE = re.compile(
    r"(?i)inconsistent|mismatch|incompatible|(?:un|im)balanced|disagree|unequal|differ(?:s|ent)?\b"
    r"|(?:not|n't) (?:to )?(?:equal|match|the same)"
    r"|\b(?:must|should|needs? to) .*\b(?:same|equal|identical)\b"
    r"|\b(?:same|equal|identical|consistent)\b"
    r".*\b(?:across|between|among|for all|on (?:all|every))\b"
    r"|\b(?:on|to|use) (?:the )?same\b"
)
_OTHERS = re.compile(
    r"(?i)\b(?:other|another|remote|remaining)"
    r" (?:ranks?|tasks?|workers?|nodes?|hosts?|process(?:es)?|errors?)\b"
    r"|\breach each other\b|\bunreachable from\b|\bmissing (?:\w+ )?(?:workers?|nodes?)\b"
    r"|\b(?:worker|master|server|node|task)s? (?:was|were|has|have) (?:been )?(?:restart|remov|los)"
    r"|\bSession \w+ is not found|\bjob (?:has been|was) aborted"
)
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
    if named - {rank} or _OTHERS.search(line):
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
