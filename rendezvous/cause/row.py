"""What a row of the table of causes is. Pure."""

from __future__ import annotations

from enum import Enum

from rendezvous.frozen import frozen


class Kind(Enum):
    """What a row is, which decides how it stands against others."""

    OWN = "own"
    """Something went wrong in or below this rank."""
    BETWEEN = "between"
    """Two ranks or nodes do not fit together: the one that says so need not be the odd one."""
    OUTSIDE = "outside"
    """Somebody or something ended this rank."""
    CONSEQUENCE = "consequence"
    """This rank suffers what another one has, or waits for one that does not come."""


class Then(Enum):
    """What another start on the same nodes may change."""

    MAY_HELP = "may help"
    HOPELESS = "hopeless"
    """Nothing: it fails alike until somebody changes something."""
    SICK = "sick"
    """Nothing for long: a device of the node is broken."""


@frozen
class Row:
    """One cause.

    Attributes:
        id: Its name in `result.json`.
        says: What it means, as a sentence continues after the rank's name.
        hint: What to do.
        patterns: Regular expressions of lines that tell it.
        words: Regular expressions of quoted words, where no other row explains them.
        codes: Exit codes that tell it, where no line or fact tells more; 128 + n for signal n.
        group: "devices" or "others", where rows are looked up by it.
    """

    id: str
    says: str
    hint: str = ""
    patterns: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    kind: Kind = Kind.OWN
    then: Then = Then.MAY_HELP
    group: str = ""
