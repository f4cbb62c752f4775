"""A torchrun that is begun early, part by part: without torch, and nothing ends this process."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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


def test_its_own_errors_go_where_the_hook_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of logs that torch has begun with the stream from before."""
    before, own, other = io.StringIO(), io.StringIO(), io.StringIO()
    handlers = [logging.StreamHandler(stream) for stream in (before, other)]
    monkeypatch.setattr(sys, "stderr", before)
    hook = SimpleNamespace(install=lambda: setattr(sys, "stderr", own))
    spec = SimpleNamespace(loader=SimpleNamespace(exec_module=lambda module: None))
    asked: list[Any] = []

    def location(*given: Any) -> Any:
        asked.append(given)
        return spec

    util = SimpleNamespace(
        spec_from_file_location=location,
        module_from_spec=lambda found: hook,
    )
    monkeypatch.setattr(early, "importlib", SimpleNamespace(util=util))
    early.use_hook()
    assert [handler.stream for handler in handlers] == [own, other]
    [(_, path)] = asked
    assert path.endswith("worker/look/site/sitecustomize.py")
    assert Path(path).exists()
