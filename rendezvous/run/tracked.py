"""State that remembers what a decision changes in it. Pure.

A journal holds the decisions that were made, not the rules that made them. Between two calls of
`track` each field of a `Tracked` object that is assigned another value is noted with its old one,
and `rendezvous.run.changes` writes the record. An object that is made meanwhile is not tracked: the
field that holds it is written, and all of it with that.

Values of fields are replaced, never changed in place, and declared so that a type checker allows
nothing else. The few containers that would be copied once for each node are edited one by one:
an `EditedSet` and an `EditedMapping`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_assign = object.__setattr__

Assigned = dict[tuple[int, Any], tuple[Any, Any]]
"""By the identity of an object and the name of its field (of a container: the key): the object, and
what was there before."""

_assigned: Assigned | None = None


def track(assigned: Assigned | None) -> None:
    """Note what is assigned from now on; None: nothing."""
    global _assigned
    _assigned = assigned


@dataclass_transform(field_specifiers=(field,))
def tracked(kind: type[T]) -> type[T]:
    """As `dataclass(slots=True)`, for a `Tracked` class: what its `__init__` sets is new."""
    made = dataclass(slots=True)(kind)
    initialise: Any = made.__init__

    def init(self: Any, *args: Any, **values: Any) -> None:
        global _assigned
        kept, _assigned = _assigned, None
        try:
            initialise(self, *args, **values)
        finally:
            _assigned = kept

    made.__init__ = init  # type: ignore[method-assign]
    return made


class Tracked:
    """A part of the state; a subclass is made with `tracked`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if _assigned is not None:
            before = getattr(self, name)
            if before is value:
                return
            _assigned.setdefault((id(self), name), (self, before))
        _assign(self, name, value)


class EditedSet(Set[K]):
    """Type of a field whose set is changed by `add` and `discard` alone."""

    __slots__ = ()

    @abstractmethod
    def add(self, element: K) -> None:
        """Put the element in."""

    @abstractmethod
    def discard(self, element: object) -> None:
        """Take the element out, if it is in."""


class EditedMapping(Mapping[K, V]):
    """Type of a field whose mapping is changed by the assignment of a value alone."""

    __slots__ = ()

    @abstractmethod
    def __setitem__(self, key: K, value: V) -> None: ...


class TrackedSet(set[K], EditedSet[K]):
    """A set whose edits are tracked."""

    __slots__ = ()

    def add(self, element: K) -> None:
        """See the base class."""
        if _assigned is not None:
            _assigned.setdefault((id(self), element), (self, element in self))
        super().add(element)

    def discard(self, element: object) -> None:
        """See the base class."""
        if _assigned is not None:
            _assigned.setdefault((id(self), element), (self, element in self))
        super().discard(element)


class TrackedDict(dict[K, V], EditedMapping[K, V]):
    """A dict whose edits are tracked."""

    __slots__ = ()

    def __setitem__(self, key: K, value: V) -> None:
        if _assigned is not None:
            _assigned.setdefault((id(self), key), (self, self.get(key)))
        super().__setitem__(key, value)
