"""rdzv brings the nodes of one training job together; `rdzv --help` is its command.

    run = rdzv.launch("train.py --epochs 3", nnodes=2)     # a script, a notebook: docs/python.md
    print(run.wait().message)

    me = rdzv.current()                                    # in a rank; None outside of a run
    if me and me.restarts: ...

What a training program may import lives here: standard library only, and nothing of the rest. A
rank imports it beside torch, so each name is loaded when it is first used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rdzv.command import RdzvError
    from rdzv.inside import Rank, current
    from rdzv.run import Node, Result, Run, RunFailed, Status, attach, launch

__all__ = [
    "launch",
    "attach",
    "Run",
    "Status",
    "Result",
    "Node",
    "RdzvError",
    "RunFailed",
    "current",
    "Rank",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            from difflib import get_close_matches

            near = get_close_matches(name, __all__, 1)
            more = f"; did you mean {near[0]!r}?" if near and name[:1] != "_" else ""
            raise AttributeError(f"module 'rdzv' has no attribute {name!r}{more}")
        from importlib import import_module

        home = {"current": "inside", "Rank": "inside", "RdzvError": "command"}.get(name, "run")
        globals()[name] = found = getattr(import_module(f"rdzv.{home}"), name)
        return found

    def __dir__() -> "list[str]":
        return sorted([*globals(), *__all__])
