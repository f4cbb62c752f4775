"""A torchrun that is begun early, part by part: without torch, and nothing ends this process."""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from worker.programs import early_torchrun as early


class Over(BaseException):
    """This process would be another one from here on."""


@pytest.mark.parametrize("order", [None, {"argv": ["/bin/torchrun", "t.py"]}])
@pytest.mark.parametrize("can_run", [True, False])
@pytest.mark.parametrize("works", [True, False])
def test_it_imports_then_waits_for_its_order_and_then_is_torchrun(
    monkeypatch: pytest.MonkeyPatch, order: Any, can_run: bool, works: bool
) -> None:
    """Neither the hook nor torchrun's barrier is needed; without torch it is started anew."""
    done: list[Any] = []

    def step(name: str, found: Any = None) -> None:
        def call(*given: Any) -> Any:
            done.append(name if name != "leave" else (name, *given))
            if isinstance(found, (BaseException, type)):
                raise found
            return found

        monkeypatch.setattr(early, name, call)

    step("look_like")
    step("has_torch", can_run)
    step("read_order", order)
    step("follow")
    for name, error in (("use_hook", OSError("none")), ("stay_at_barrier", ImportError("none"))):
        step(name, None if works else error)
    step("await_store")
    step("execute", 7)
    step("leave", Over)

    def anew(*given: Any) -> None:
        done.append(given)
        raise Over

    monkeypatch.setattr(early, "os", SimpleNamespace(environ={}, execv=anew))
    monkeypatch.setattr(sys, "argv", ["/bin/torchrun", "t.py"])
    first = ["look_like", "has_torch", "read_order"]
    if order is None:
        early.main("/bin/torchrun")
        assert done == first
        return
    with pytest.raises(Over):
        early.main("/bin/torchrun")
    words = ["/bin/torchrun", "t.py"]
    here = ["use_hook", "await_store", "stay_at_barrier", "execute", ("leave", 7)]
    assert done == [*first, "follow", *(here if can_run else [("/bin/torchrun", words)])]


@pytest.mark.parametrize(("before", "after"), [("HERE", "/opt/bin"), ("/a", "/a"), (None, None)])
def test_it_imports_from_where_torchrun_does_and_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str | None
) -> None:
    here, name = os.path.dirname(os.path.realpath(early.__file__)), tmp_path / "comm"
    path = [] if before is None else [before.replace("HERE", here), here]
    monkeypatch.setattr(early, "sys", SimpleNamespace(path=path))
    monkeypatch.setattr(early, "open", lambda *_, **__: name.open("w"), raising=False)
    early.look_like("/opt/bin/torchrun")
    assert path == ([] if after is None else [after, here])
    assert name.read_text() == "torchrun"
    monkeypatch.setattr(early, "open", lambda *_, **__: (tmp_path / "no/x").open(), raising=False)
    early.look_like("x")  # it does without a name


@pytest.mark.parametrize(("said", "order"), [("", None), ('{"argv": ["x"]}', {"argv": ["x"]})])
def test_its_input_is_the_order_and_empty_afterwards(said: str, order: Any) -> None:
    code = (
        "import json, os, sys; from worker.programs.early_torchrun import read_order\n"
        "print(json.dumps([read_order(), os.read(0, 9).decode(), os.listdir('/proc/self/fd')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=said, capture_output=True, text=True, timeout=60
    )
    found, rest, files = json.loads(done.stdout)
    assert (found, rest, sorted(files)[:3]) == (order, "", ["0", "1", "2"])
    assert len(files) == 4  # the folder that is listed


def test_words_and_variables_of_the_order_are_taken_as_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {b"OLD": b"1", b"KEPT": b"2", b"NEW": b"0"}
    monkeypatch.setattr(early, "os", SimpleNamespace(environb=environ, fsdecode=os.fsdecode))
    order = {"argv": ["t", "\xe9"], "unset": ["OLD", "NONE"], "set": {"NEW": "\xc3\xa9", "X": ""}}
    argv = ["t", os.fsdecode(b"\xe9")]
    for whole, after in (
        (["python", "-X", "dev", "early", "torchrun"], ["python", "-X", "dev", *argv]),
        (["python", "-c"], ["python", "-c"]),
    ):
        fake = SimpleNamespace(argv=["early", "torchrun"], orig_argv=whole)
        monkeypatch.setattr(early, "sys", fake)
        early.follow(order)
        assert (fake.argv, fake.orig_argv) == (argv, after)
    assert environ == {b"KEPT": b"2", b"NEW": b"\xc3\xa9", b"X": b""}


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("x = 1", 0, None),
        ("raise SystemExit", 0, None),
        ("raise SystemExit(7)", 7, None),
        ("def f():\n  raise ValueError('x')\nf()", 1, ("ValueError", True)),
        ("x = (", 1, ("SyntaxError", False)),
    ],
)
def test_a_script_is_executed_as_python_executes_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    code: int,
    told: tuple[str, bool] | None,
) -> None:
    """Its traceback begins with its own first frame."""
    script, shown = str(tmp_path / "script"), list[Any]()
    Path(script).write_text(f"assert __name__ == '__main__'\n{text}" if told is None else text)

    def hook(kind: Any, error: Any, trace: Any) -> None:
        assert error.__traceback__ is trace
        shown.append((kind.__name__, bool(trace and trace.tb_frame.f_code.co_filename == script)))

    monkeypatch.setattr(sys, "excepthook", hook)
    assert early.execute(script) == code
    assert shown == ([told] if told else [])


def test_words_as_an_exit_code_are_pythons_to_print(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("raise SystemExit('no data')")
    with pytest.raises(SystemExit, match="no data"):
        early.execute(str(tmp_path / "script"))


@pytest.mark.parametrize("fails", [True, False])
def test_it_leaves_at_once_when_all_that_waits_for_its_end_has_run(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    done: list[Any] = []

    def step(name: str, *, may_fail: bool = True) -> Callable[..., None]:
        def call(*given: Any) -> None:
            done.append((name, *given))
            if fails and may_fail:
                raise ValueError(name)

        return call

    def leaves(code: int) -> None:
        step("leaves", may_fail=False)(code)
        raise Over

    monkeypatch.setattr(early, "os", SimpleNamespace(environ={}, _exit=leaves))
    stream = SimpleNamespace(flush=step("flush"))
    monkeypatch.setattr(early, "sys", SimpleNamespace(stdout=stream, stderr=stream, exit=sys.exit))
    threads = SimpleNamespace(_shutdown=step("threads", may_fail=False))
    monkeypatch.setattr(early, "threading", threads)
    monkeypatch.setattr(early, "atexit", SimpleNamespace(_run_exitfuncs=step("atexit")))
    with pytest.raises(Over):
        early.leave(300)
    assert done == [("threads",), ("atexit",), ("flush",), ("flush",), ("leaves", 300 - 256)]
    done.clear()
    early.os.environ["LD_PRELOAD"] = "a tool"  # type: ignore[attr-defined]
    with pytest.raises(SystemExit) as found:
        early.leave(3)
    assert (found.value.code, done) == (3, [])


@pytest.mark.parametrize("has_torch", [True, False])
@pytest.mark.parametrize("collects", [True, False])
def test_what_torchrun_imports_is_imported_without_the_collector(
    monkeypatch: pytest.MonkeyPatch, has_torch: bool, collects: bool
) -> None:
    done: list[str] = []
    fake = {name: lambda n=name: done.append(n) for name in ("disable", "enable")}
    monkeypatch.setattr(early, "gc", SimpleNamespace(isenabled=lambda: collects, **fake))
    for name in ("torch", "torch.distributed", "torch.distributed.run"):
        made: Any = ModuleType(name) if has_torch else None
        monkeypatch.setitem(sys.modules, name, made)
    assert early.has_torch() is has_torch
    assert done == ["disable", *(["enable"] if collects else [])]
    assert gc.isenabled()


def test_its_own_errors_go_where_the_hook_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of logs that torch has begun with the stream from before."""
    before, own, other = io.StringIO(), io.StringIO(), io.StringIO()
    handlers = [logging.StreamHandler(stream) for stream in (before, other)]
    monkeypatch.setattr(sys, "stderr", before)
    hook = SimpleNamespace(install=lambda: setattr(sys, "stderr", own))
    spec = SimpleNamespace(loader=SimpleNamespace(exec_module=lambda module: None))
    asked: list[Any] = []
    util = SimpleNamespace(
        spec_from_file_location=lambda *given: asked.append(given) or spec,
        module_from_spec=lambda found: hook,
    )
    monkeypatch.setattr(early, "importlib", SimpleNamespace(util=util))
    early.use_hook()
    assert [handler.stream for handler in handlers] == [own, other]
    [(_, path)] = asked
    assert path.endswith("worker/look/site/sitecustomize.py")
    assert Path(path).exists()
