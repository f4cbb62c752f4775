"""Causes that an end itself shows, or that follow from how all ranks ended. Pure."""

from __future__ import annotations

from functools import partial

from rendezvous.cause.row import Kind, Row

_outside = partial(Row, kind=Kind.OUTSIDE)

OUTSIDE = (
    _outside(
        "time_limit",
        "the scheduler ended it at the job's time limit",
        "the scheduler's own words",
        "ask for more time, or start again from the state that was saved last",
        (r"DUE TO TIME LIMIT",),
    ),
    _outside(
        "preempted",
        "the scheduler preempted its worker run",
        "the scheduler's own words",
        "start again from the state that was saved last, or let the job requeue itself",
        (r"DUE TO PREEMPTION", r"DUE TO JOB REQUEUE", r"DUE TO NODE FAILURE"),
    ),
    _outside(
        "evicted",
        "Kubernetes took its pod away",
        "the pod's reason, or the node's message",
        "see `kubectl describe pod`: a limit of disk or memory, or a node that was drained",
        (r"The node was low on resource", r"Pod was (evicted|preempted)", r"\bEvicted\b"),
    ),
    _outside(
        "launcher_ended",
        "its launcher got a signal to end, and passed it on",
        "the signal, and torchrun's own words of it",
        "it often comes from the scheduler, a terminal that was closed, or a person",
        (r"Received \S+ death signal", r"SignalException: Process \d+ got signal"),
    ),
    _outside(
        "job_cancelled",
        "its job was cancelled at the scheduler",
        "the scheduler's own words",
        "was it cancelled with scancel?",
        (r"slurmstepd: error: .*CANCELLED AT",),
    ),
    _outside(
        "stopped_process",
        "it is stopped (SIGSTOP), so that the others wait for it",
        "state T in /proc",
        "continue it (kill -CONT), or see who stopped it: a debugger, a checkpoint tool",
    ),
    _outside(
        "killed",
        "something outside of the run killed it",
        "SIGKILL that neither rdzv sent, nor the kernel for memory, as far as it shows",
        "SIGKILL often comes from the kernel (out of memory) or from the scheduler",
        codes=(128 + 9,),
    ),
    _outside(
        "terminated",
        "something outside of the run ended it, before anything had failed",
        "SIGTERM or SIGHUP that rdzv did not send",
        "SIGTERM often comes from the scheduler (a time limit, a preemption) or from a person",
        codes=(128 + 15, 128 + 1),
    ),
    _outside(
        "interrupted",
        "something outside of the run interrupted it",
        "SIGINT that rdzv did not send",
        "Ctrl-C was pressed there, or the scheduler sends SIGINT before it ends a job",
        codes=(128 + 2,),
    ),
)


ENDS = (
    Row(
        "cpu_limit",
        "it has used all the processor time that it may",
        "SIGXCPU",
        "lift the limit (ulimit -t)",
        codes=(128 + 24,),
    ),
    Row(
        "bus_error",
        "it used mapped memory that has nothing behind it",
        "SIGBUS",
        "is a file that it maps shorter than before, or written again? Else a full /dev/shm, or a "
        "full file system below a mapped file, is the usual cause",
        (r"Fatal Python error: Bus error",),
        (128 + 7,),
    ),
    Row(
        "segfault",
        "it crashed in native code",
        "SIGSEGV; with Python's faulthandler, the line of Python that called it",
        "a library that does not fit is the usual cause: compare versions with the other nodes'",
        (r"Fatal Python error: Segmentation fault",),
        (128 + 11,),
    ),
    Row(
        "crash",
        "it crashed in native code",
        "SIGILL, SIGFPE, SIGTRAP or SIGSYS",
        "SIGILL: a library was built for another processor; SIGSYS: the container forbids the call",
        (r"Fatal Python error: (Illegal instruction|Floating[ -]point exception)",),
        (128 + 4, 128 + 5, 128 + 8, 128 + 31),
    ),
    Row(
        "own_watchdog",
        "its own watchdog's time-out has ended it",
        "faulthandler's `Timeout`, and where its main thread was",
        "what is it doing there? It may load data, wait for a lock or hang",
    ),
    Row(
        "exception",
        "its program raised an exception",
        "the last line of its traceback",
    ),
    Row(
        "abort",
        "native code of it gave up",
        "SIGABRT, and what C++ or the program's last line said",
        "compare the native libraries of this node with the others'; a gloo job may abort like "
        "this after it has succeeded: end the script with os._exit",
        patterns=(r"^\s*what\(\):", r"Fatal Python error: Aborted", r"^terminate called"),
        codes=(128 + 6,),
    ),
    Row(
        "exit_code",
        "its program ended by itself",
        "an exit code without a known reason; the last error that it wrote is quoted, or its last "
        "line",
    ),
)


NODES = (
    _outside(
        "node_lost",
        "its node went silent",
        "the registry's lease, or its connection that was closed",
        "see its worker run's log; out of memory and preemption are the usual causes",
    ),
    Row(
        "node_failed",
        "its agent ended it",
        "what the agent itself says",
    ),
)


JUDGED = (
    Row(
        "store_unreachable",
        "it could not reach the store in which the ranks meet, where the others have",
        "the words of torch's socket, and the time-outs of the others",
        "compare MASTER_ADDR and MASTER_PORT of this rank with the others', and see whether its "
        "node can reach that address",
    ),
    Row(
        "early_end",
        "it ended with exit code 0 while others continued, which then waited for it",
        "the ends of all ranks: nothing but waiting failed",
        "the ranks do not take the same number of steps: compare the lengths of their data",
    ),
    Row(
        "late_rank",
        "it had not come when the others' time-out for the start had ended",
        "time-outs of torch's store in all ranks but a few",
        "what is it doing before init_process_group? It may import slowly, load data or hang",
    ),
    Row(
        "absent_rank",
        "it did not take part in a collective in which the others waited",
        "time-outs in all ranks but a few",
        "what is it doing meanwhile? It may load data, save a checkpoint or hang",
    ),
    Row(
        "desync",
        "all ranks waited for each other",
        "time-outs in all ranks",
        "they do not call the same collectives in the same order, or the network holds them: see "
        "that no branch depends on the rank",
    ),
)
