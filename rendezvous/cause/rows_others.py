"""What libraries and launchers say of others, in words that no row before knows. Pure.

Who speaks decides, not what is said: a communication library or a launcher tells of other ranks.
Only where it names this rank's own device, memory or files is that another row, or no row at all.
"""

from __future__ import annotations

from rendezvous.cause.row import Kind, Row

_OF_ITSELF = (
    r"^(?!.*(?:(?i:cuda|hip|driver) (?:failure|error)|Unable to (?:find|resolve|open)|No such "
    r"|[Nn]ot (?:supported|compiled|permitted)|[Uu]nsupported|server socket has failed))"
)
"""A line in which a library does not speak of this rank's own devices, files and interfaces."""
_SPOKEN_BY = (
    r"\bDist(?:Backend|Network|Store)Error\b",
    r"\bnccl(?:System|Internal|Remote|Invalid|Unhandled|Timeout)\w*",
    r"\[[EF]\d{0,4}[^\]]* (?:ProcessGroup|TCPStore|socket|Heartbeat|FlightRecorder)\w*\.[ch]pp",
    r"\bgloo[/:]",
    r"\bUC[XC]  ?(?:ERROR|FATAL)",
    r"coordination_service\w*\.cc:|distributed service detected",
    r"XlaRuntimeError: (?:ABORTED|CANCELLED|DEADLINE_EXCEEDED|UNAVAILABLE)",
    r"\bMPI_ERR|\b(?:PMIX|PMIx|PRTE|ORTE|OPAL|MPID?I?R?)_?ERR|\bPMPI_\w+\(|\bMPIDI?\w*\(",
    r"\bHorovod\w*(?:Error|has been shut down)",
)
_ENDED = r"(?:die|dead|exit|fail|crash|abort|terminat|disconnect|unhealthy|gone\b|lost\b|kill|shut)"

OTHERS = (
    Row(
        "communication",
        "what it does together with other ranks failed",
        "the words of a communication library that no other row knows",
        kind=Kind.CONSEQUENCE,
        patterns=(rf"{_OF_ITSELF}.*(?:{'|'.join(_SPOKEN_BY)})",),
    ),
    Row(
        "others_ended",
        "it was ended, or ended itself, because another process had",
        "the words of a launcher or a service",
        kind=Kind.CONSEQUENCE,
        patterns=(
            r"Child process with PID \d+ terminated",
            r"^srun: (?:error: \S+ tasks? [\d,-]+: (?!Out Of Memory)|Job step aborted|Terminating)",
            r"^\[?(?:mpirun|mpiexec|prterun)\b.*(?:noticed|detected) that",
            rf"^[EF]\d{{4}} .*\b(?:an)?other (?:task|process|rank|node|worker)\w*\b.*{_ENDED}",
        ),
    ),
)
