"""Where what is shipped beside the code lies: profiles and specs."""

from __future__ import annotations

from pathlib import Path

PROFILES = Path(__file__).parent / "profiles"
"""The shipped profiles, one file for each scheduler."""


def specs_folder() -> Path:
    """The shipped specs: inside the package in a wheel, beside it in a checkout."""
    inside = Path(__file__).parent.parent / "specs"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "specs"
