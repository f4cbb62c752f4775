"""Scripts whose first line keeps them from being started."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.missing import give_up
from worker.program import keeper
from worker.program.first_line import first_line_problem, is_noexec


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (b"#!/bin/sh\n", ""),
        (b"#! /bin/sh -e\necho\r\n", ""),
        (b"#!/usr/bin/env python3\n", ""),
        (b"echo no first line\r\n", ""),
        (b"", ""),
        (b"#!\n", ""),
        (b"\x7fELF\r\n", ""),
        (b"#!/bin/sh\r\necho\r\n", "its lines end as on Windows (CRLF): convert it with dos2unix"),
        (b"#!/usr/bin/env python3\r\n", "its lines end as on Windows (CRLF): convert"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "a byte order mark precedes its #! line"),
        (b"#!/no/such/python -u\n", "its first line names /no/such/python, which is not on this"),
    ],
)
def test_what_the_kernel_cannot_read_of_a_first_line_is_named(
    tmp_path: Path, head: bytes, problem: str
) -> None:
    script = tmp_path / "run"
    script.write_bytes(head)
    found = first_line_problem(str(script))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_the_keeper_explains_by_the_first_line(tmp_path: Path) -> None:
    script = tmp_path / "run"
    script.write_bytes(b"#!/bin/sh\r\n")
    code, reason = keeper.explain(str(script), OSError(errno.ENOENT, ""))
    assert (code, "dos2unix" in reason) == (127, True)
    script.write_bytes(b"\xef\xbb\xbf#!/bin/sh\n")
    code, reason = keeper.explain(str(script), OSError(errno.ENOEXEC, ""))
    assert (code, "byte order mark" in reason) == (126, True)


def test_a_script_on_a_file_system_mounted_noexec_is_told_by_that(tmp_path: Path) -> None:
    assert not is_noexec("/no/such/file")
    assert not is_noexec("/bin/sh")
    mount = ["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        give_up("mounting needs root")
    try:
        (tmp_path / "run").write_text("#!/bin/sh\n")
        (tmp_path / "run").chmod(0o755)
        error = OSError(errno.EACCES, "")
        assert "mounted noexec" in keeper.explain(str(tmp_path / "run"), error)[1]
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
