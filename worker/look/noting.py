"""Notes the worlds that a rank takes part in: how many processes each has, and which one this is.

It is run by the hook in the user's interpreter, of any version from 3.8, under no name that could
be imported, so it imports the interpreter's own modules alone, raises nothing and prints nothing.

A library keeps the world that it has formed in an attribute of one private object. That object gets
a class below its own, which notes what is put there: no function is replaced, nothing runs beside
the program, and a world that lasts for a moment is seen as well. Before that it is waited for that
the library is imported, since nothing is imported here.

What is noted is a link in the folder of the hook, which costs no open file, to no file but a word:

    RANK.world.LIBRARY.SIZE.PLACE.PID

LIBRARY is `torch` or `jax`, and RANK the local rank of which the process has the variables: it may
have been started by that rank. Where another library is there that forms worlds which cannot be
seen from here, nothing is noted: it may be the one that counts.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Place = tuple[int, int] | None
    """Size of a world, and the number of this process in it."""

UNSEEN = ("horovod", "mpi4py", "ray", "torchft")
MOST = 64
"""Notes of a process: who forms more worlds forms them for something else."""
_MOST_SIZE = 1 << 24


JAX_READY = ("preemption_sync_manager", "partition_index")
"""Attributes that jax sets once it is connected, the one or the other by its version."""


def _of_torch(world: "Any") -> "Place":
    group = world.default_pg
    return None if group is None else (int(group.size()), int(group.rank()))


def _of_jax(state: "Any") -> "Place":
    return None if state.client is None else (int(state.num_processes), int(state.process_id))


LIBRARIES = (
    ("torch", "torch.distributed.distributed_c10d", "_world", ("_default_pg",), _of_torch),
    ("jax", "jax._src.distributed", "global_state", JAX_READY, _of_jax),
)
"""Libraries; of each: its name here, the module and the object that has its world, which attributes
are set when there is one, and what reads it."""


class Notes:
    """Notes of a process, as long as it lives, and of what is forked from it."""

    def __init__(self, folder: str, rank: str) -> None:
        self.folder = folder
        self.rank = rank
        self.noted: set[str] = set()
        self.waiting = list(LIBRARIES)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """See one import, and find nothing; the module before it may be complete."""
        if name.startswith(("torch.distributed.", "jax.", "jax._src.")):
            self.look()

    def look(self) -> None:
        """Begin to watch the objects that are there."""
        for each in list(self.waiting):
            library, module, name, attributes, read = each
            try:
                state = getattr(sys.modules.get(module), name, None)
                if state is not None:
                    self.waiting.remove(each)
                    watch(state, attributes, self.reader(library, read))
            except Exception:  # noqa: BLE001, S110 (private, and of another form)
                pass

    def reader(self, library: str, read: "Callable[[Any], Place]") -> "Callable[[Any], None]":
        """Make a function that notes the world that an object of a library has."""
        return lambda state: self.note(library, read(state))

    def note(self, library: str, place: "Place") -> None:
        """Note a world, once."""
        if place is None or any(name in sys.modules for name in UNSEEN):
            return
        size, own = place
        name = f"{self.rank}.world.{library}.{size}.{own}.{os.getpid()}"
        if name not in self.noted and len(self.noted) < MOST and 0 <= own < size <= _MOST_SIZE:
            self.noted.add(name)
            os.symlink("world", os.path.join(self.folder, name))


def watch(state: "Any", attributes: "tuple[str, ...]", seen: "Callable[[Any], None]") -> None:
    """Have something called whenever one of an object's attributes has been set.

    Raises:
        TypeError: Its class is not one in Python.
    """
    own: Any = type(state)

    def __setattr__(self: "Any", name: str, value: object) -> None:
        own.__setattr__(self, name, value)
        if name in attributes:
            try:  # noqa: SIM105 (nothing more is imported)
                seen(self)
            except Exception:  # noqa: BLE001, S110 (the user's program is more important)
                pass

    names = {"__setattr__": __setattr__, "__module__": own.__module__, "__doc__": own.__doc__}
    state.__class__ = type(own.__name__, (own,), names)
    seen(state)


def start(folder: str, rank: str) -> None:
    """Note what this process takes part in from now on.

    Args:
        folder: What RDZV_LOOK_FOLDER names.
        rank: The local rank.
    """
    notes = Notes(folder, rank)
    notes.look()
    sys.meta_path.insert(0, notes)
