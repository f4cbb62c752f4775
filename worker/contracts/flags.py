"""The flags of another launcher in a COMMAND, up to the target, whose own words follow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rendezvous.frozen import frozen


@frozen
class Flag:
    """One flag: the word, its name with dashes (`nproc-per-node`), its value where it has one."""

    word: str
    name: str
    value: str | None = None

    @property
    def words(self) -> list[str]:
        """The flag as it stands in COMMAND."""
        return [self.word] if self.value is None or "=" in self.word else [self.word, self.value]

    def one_of(self, names: Collection[str]) -> str:
        """Which of these it is, or is the beginning of, as argparse takes it; empty: none."""
        if not self.word.startswith("--"):
            return self.name if self.name in names else ""
        return next((name for name in names if name.startswith(self.name)), "")


def read_flags(
    words: Sequence[str], bare: Collection[str], one_dash: Collection[str] = ()
) -> tuple[list[Flag], int]:
    """The flags in front of the target, and the position of the target.

    Args:
        words: What follows the launcher's name.
        bare: Names of flags that have no value; behind every other one the next word is not the
            target.
        one_dash: Names of several letters behind one dash (`-np`); others are a letter and its
            value (`-r3`).
    """
    flags = []
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        name, has_value, _ = word.lstrip("-").replace("_", "-").partition("=")
        if not name:  # '--' ends the flags
            position += 1
            break
        is_glued = not word.startswith("--") and len(word) > 2 and name not in one_dash
        if has_value:
            flags.append(Flag(word, name, word.partition("=")[2]))
        elif is_glued or name in bare:
            flags.append(Flag(word, name))
        else:
            position += 1
            flags.append(Flag(word, name, words[position] if position < len(words) else None))
        position += 1
    return flags, position
