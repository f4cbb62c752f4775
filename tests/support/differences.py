"""Where two values of dataclasses differ, for messages of tests."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def differences(one: Any, other: Any, path: str = "run") -> list[str]:
    """Where two states differ."""
    if one == other:
        return []
    if is_dataclass(one) and type(one) is type(other):
        return [
            line
            for each in fields(one)
            for line in differences(
                getattr(one, each.name), getattr(other, each.name), f"{path}.{each.name}"
            )
        ]
    both_long = isinstance(one, list | tuple) and type(one) is type(other)
    if both_long and len(one) == len(other):
        both = enumerate(zip(one, other, strict=True))
        return [line for i, (a, b) in both for line in differences(a, b, f"{path}[{i}]")]
    return [f"{path}: {one!r}, not {other!r}"]
