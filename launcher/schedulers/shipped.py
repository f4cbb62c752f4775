"""Where what is shipped beside the code lies: profiles and specs."""

from __future__ import annotations

from pathlib import Path

PROFILES = Path(__file__).parent / "profiles"
"""The shipped profiles, one file for each scheduler."""


def specs_folder() -> Path:
    """The shipped specs, beside the packages."""
    return Path(__file__).parents[2] / "specs"
