"""Notes on an error, which pytest shows with it: what Python 3.11 has as `add_note`."""


def add_note(error: BaseException, note: str) -> None:
    """Show the note below the error."""
    error.__dict__.setdefault("__notes__", []).append(note)


def notes(error: BaseException) -> list[str]:
    """What was noted."""
    found: list[str] = error.__dict__.get("__notes__", [])
    return found
