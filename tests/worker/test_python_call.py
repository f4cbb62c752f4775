"""What an interpreter's command line says that it runs, by value."""

from __future__ import annotations

import pytest

from worker.contracts.python_call import PythonCall, read_python


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("t.py -x", PythonCall("script", (), ("t.py", "-x"))),
        ("-u -B t.py", PythonCall("script", ("-u", "-B"), ("t.py",))),
        (
            "-uB -W error -Xdev t.py",
            PythonCall("script", ("-uB", "-W", "error", "-Xdev"), ("t.py",)),
        ),
        ("-X dev -m a.b -u", PythonCall("module", ("-X", "dev"), ("a.b", "-u"))),
        ("-um a.b", PythonCall("module", ("-u",), ("a.b",))),
        ("-ma.b", PythonCall("module", (), ("a.b",))),
        ("-Oc pass -x", PythonCall("code", ("-O",), ("pass", "-x"))),
        ("-m", PythonCall("module", (), ())),
        ("-W", PythonCall("none", ("-W",), ())),
        ("-u", PythonCall("none", ("-u",), ())),
        ("", PythonCall("none", (), ())),
        ("-", PythonCall("script", (), ("-",))),
        ("-uV t.py", PythonCall("other", ("-uV",), ("t.py",))),
        ("--version", PythonCall("other", ("--version",), ())),
    ],
)
def test_an_interpreters_flags_end_at_what_it_runs(words: str, call: PythonCall) -> None:
    assert read_python(words.split()) == call
