"""The sources of the product as trees: each is read once by a test process, whoever asks for it."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """What a file holds; nobody changes it."""
    source, collects = path.read_text("utf-8"), gc.isenabled()
    gc.disable()  # nothing of it is garbage: to look for some took two thirds of the time
    try:
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree, in the order of `ast.walk`."""
    return tuple(ast.walk(tree))
