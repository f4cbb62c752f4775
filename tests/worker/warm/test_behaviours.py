"""What a program sees and does, started by Python and forked from a zygote: side by side."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import seen
from tests.support.forking import LIKE_TORCHRUNS, Outcome, Zygote
from tests.support.nightly import at_night

pytestmark = [pytest.mark.frameworks, pytest.mark.torch, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[3]
SHOWS = """
import json, os, sys, pathlib
from seen import seen
main = sys.modules["__main__"]
more = {
    "words shown": pathlib.Path("/proc/self/cmdline").read_bytes().decode().rstrip("\\0"),
    "name shown": pathlib.Path("/proc/self/comm").read_text(),
    "main": {name: str(getattr(main, name, "-")) for name in
             ("__name__", "__file__", "__spec__", "__package__", "__doc__", "__cached__",
              "__annotations__")},
    "main is this": main.__dict__ is globals(),
    "main has": sorted(name for name in globals() if name.startswith("__")),
    "loader": type(main.__loader__).__name__,
    "hash": hash("a word"),
    "excepthook": sys.excepthook is sys.__excepthook__,
    "meta path": [str(one).partition(" object at")[0] for one in sys.meta_path],
    "trace": [str(sys.gettrace()), str(sys.getprofile()), sys.getrecursionlimit()],
}
print(json.dumps({**seen(), **more}))
"""
SEEN = (
    *("argv", "orig_argv", "path", "executable", "flags", "environ", "c environ", "status"),
    *("handlers", "files", "stdin", "streams", "folder", "umask", "limits", "leads", "priority"),
    *("threads", "collector", "dumpable", "death signal", "words shown", "name shown", "main"),
    *("main is this", "main has", "loader", "hash", "excepthook", "meta path", "trace"),
)


class Row(NamedTuple):
    """A program, of which both ways have the same outcome.

    Attributes:
        name: What of it is compared.
        program: Its text.
        words: How it is called; `t.py` is the program.
        environ: Variables beside the usual.
        same: What is made of what it has printed, before it is compared.
    """

    name: str
    program: str
    words: tuple[str, ...] = ("t.py",)
    environ: tuple[tuple[str, str], ...] = ()
    same: Callable[[str], str] = str


def _no_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|[0-9]+", "N", text)


def _first_lines(text: str) -> str:
    """Below the program's own frames there are those of who has started it."""
    kept = [line for line in text.splitlines() if "warm/" not in line]
    kept = [line for line in kept if "Extension modules" not in line]
    return re.sub("0x[0-9a-f]+|USDT.*", "N", "\n".join(kept).strip())


METHOD = """
import multiprocessing as mp, os, sys
def square(x):
    return x * x, __name__, mp.parent_process() is not None
if __name__ == "__main__":
    mp.set_start_method({method!r})
    with mp.Pool(2) as pool:
        print(pool.map(square, range(4)), mp.current_process().name, mp.parent_process())
"""
LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.full((2,), float(index)) * 2
if __name__ == "__main__":
    torch.manual_seed(3)
    loader = DataLoader(Data(), num_workers=2, multiprocessing_context={method!r}, shuffle=True)
    print([row.tolist() for row in loader])
"""
ROWS = [
    *(Row(f"exit code {text}", f"import sys\nsys.exit({text})") for text in ("3", "None", "-1")),
    Row("words as exit code", "import sys\nprint('x')\nsys.exit('no such data')"),
    Row("end without cleaning up", "import os\nprint('x', end='')\nos._exit(7)"),
    *(
        Row(
            f"death by {name}",
            f"import os, signal\nos.kill(os.getpid(), signal.{name})",
            same=_first_lines,
        )
        for name in ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGHUP", "SIGUSR1")
    ),
    Row("interrupt", "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)"),
    Row(
        "own handler",
        "import os, signal, sys\nsignal.signal(15, lambda *_: sys.exit(4))\n"
        "os.kill(os.getpid(), 15)\nsignal.pause()",
    ),
    Row("closed pipe", "import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')"),
    Row(
        "atexit",
        "import atexit\natexit.register(print, 'last')\natexit.register(print, 'first')\n"
        "raise SystemExit(5)",
    ),
    Row("finalisation", "import sys\nclass A:\n    def __del__(self): print('gone')\na = A()"),
    Row(
        "threads at the end",
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\nprint('end')",
    ),
    Row("traceback", "def f():\n    g()\ndef g():\n    raise ValueError('oh')\nf()"),
    Row(
        "chained tracebacks",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    ),
    Row("syntax error", "x = (\nprint(1)\n"),
    Row(
        "own excepthook",
        "import sys\nsys.excepthook = lambda t, e, tb: print(t, e, "
        "tb.tb_frame.f_code.co_name)\nraise ValueError('oh')",
    ),
    Row(
        "faulthandler",
        "import ctypes\nctypes.string_at(0)",
        same=_first_lines,
    ),
    Row(
        "warnings",
        "import warnings\nwarnings.warn('mind')\nwarnings.warn('this', stacklevel=2)",
        same=lambda text: re.sub(r".*UserWarning: this.*\n(  .*\n)?", "", text),
    ),
    Row(
        "stdout order",
        "import os, subprocess, sys\nprint('1')\nsys.stdout.write('2 ')\n"
        "os.write(1, b'3\\n')\nsubprocess.run(['echo', '4'])\nprint('5', end='')",
    ),
    Row("stderr", "import sys\nprint('words', file=sys.stderr)\nsys.stderr.write('no end')"),
    Row(
        "logging",
        "import logging\nlogging.warning('w')\nlogging.info('i')\n"
        "print(logging.getLogger().handlers)",
    ),
    Row("module", "", ("-m", "pack.inner", "--a", "1")),
    Row("package", "", ("-m", "pack")),
    Row("module of one file", "", ("-m", "alone")),
    Row("module that fails", "", ("-m", "pack.fails")),
    Row("module that is not there", "", ("-m", "pack.missing"), same=_first_lines),
    Row("script that is not there", "", ("gone.py",)),
    Row("script by a link", "", ("linked.py", "x")),
    Row("script in another folder", "", ("pack/alone.py",)),
    Row("names of our modules", "", ("ours.py",)),
    Row(
        "pickle of __main__",
        "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A)) is A)",
    ),
    Row("relative import in a script", "from . import x"),
    Row(
        "fork",
        "import os\nprint('a', flush=True)\nif (p := os.fork()) == 0: os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))",
    ),
    Row(
        "asyncio",
        "import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec("
        "'echo', 'x')\n    return await p.wait()\nprint(asyncio.run(f()))",
    ),
    *(Row(f"pool by {m}", METHOD.format(method=m)) for m in ("fork", "spawn", "forkserver")),
    Row(
        "resource tracker",
        "from multiprocessing import shared_memory\n"
        "a = shared_memory.SharedMemory(create=True, size=8)\nprint(a.size >= 8)",
        same=_no_numbers,
    ),
    Row("pdb", "import pdb\nx = 1\npdb.set_trace()\nprint('x')", same=_first_lines),
    Row(
        "cProfile",
        "import cProfile\ndef f(): return sum(range(9))\np = cProfile.Profile()\n"
        "p.runcall(f)\np.print_stats()",
        same=lambda text: re.sub(r"[0-9.]+", "N", text),
    ),
    Row(
        "python -m cProfile",
        "print(sum(range(9)))",
        ("-m", "cProfile", "-s", "ncalls", "t.py"),
        same=lambda text: text.splitlines()[0] if text else "",
    ),
    Row(
        "settrace",
        "import sys\nseen = []\ndef f(): return 1\n"
        "sys.settrace(lambda fr, ev, a: seen.append(fr.f_code.co_name))\nf()\nsys.settrace(None)\n"
        "print(seen)",
    ),
]
WITH_TORCH = [
    *(Row(f"data loader by {m}", LOADER.format(method=m)) for m in ("fork", "spawn", "forkserver")),
    Row(
        "torch",
        "import torch\ntorch.manual_seed(3)\nx = torch.randn(64, 64)\n"
        "print((x @ x).sum().item(), torch.get_num_threads(), torch.cuda.is_initialized(),\n"
        "torch.cuda._is_in_bad_fork(), torch.is_grad_enabled(), torch.get_default_dtype())",
    ),
    Row(
        "torch.multiprocessing",
        "import torch.multiprocessing as mp\n"
        "def f(rank, q): q.put(rank)\nif __name__ == '__main__':\n"
        "    q = mp.get_context('spawn').SimpleQueue()\n    mp.spawn(f, (q,), 2)\n"
        "    print(sorted([q.get(), q.get()]))",
    ),
    Row(
        "torchrun's error file",
        "import json, os\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main(): raise ValueError('oh')\ntry:\n    main()\nexcept ValueError:\n"
        "    print(json.load(open(os.environ['TORCHELASTIC_ERROR_FILE']))['message']['message'])",
    ),
    Row(
        "torch.profiler",
        "import torch\nwith torch.profiler.profile() as p:\n"
        "    torch.ones(4).sum()\nprint(sorted(e.key for e in p.key_averages()))",
        same=_first_lines,
    ),
    Row(
        "compiled kernels' threads",
        "import torch\ntorch.set_num_threads(2)\n"
        "x = torch.randn(512, 512)\nprint((x @ x).shape, torch.get_num_threads())",
    ),
]
EACH_PUSH = ("data loader by fork", "torch", "torchrun's error file")
FILES = {
    "pack/__init__.py": "print('pack')\n",
    "pack/__main__.py": "from . import inner\nimport sys\nprint('main', sys.argv, __spec__.name)\n",
    "pack/inner.py": "import sys\nfrom .other import WORD\n"
    "print(WORD, sys.argv, __name__, __package__, __spec__.name, sys.path[0])\n",
    "pack/other.py": "WORD = 'relative'\n",
    "pack/fails.py": "def f(): raise ValueError('oh')\nf()\n",
    "pack/alone.py": "import sys\nfrom other import WORD\nprint(WORD, sys.path[0], __file__)\n",
    "alone.py": "import sys\nprint(sys.argv, __file__, sys.path[0])\n",
    "ours.py": "import sys\nimport worker, rank, store\nfrom worker import programs\n"
    "print(worker.WHOSE, rank.WHOSE, store.WHOSE, programs)\n"
    "print([n for n in sys.modules if 'zygote' in n or 'keeper' in n])\n",
    "worker/__init__.py": "WHOSE = 'yours'\nprograms = 1\n",
    "rank.py": "WHOSE = 'yours'\n",
    "store.py": "WHOSE = 'yours'\n",
}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    folder = tmp_path_factory.mktemp("warm")
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    shutil.copy(seen.__file__, folder)
    (folder / "other").mkdir()
    (folder / "other" / "place.py").write_text(
        "import sys\nprint(sys.argv, sys.path[0], __file__)\n"
    )
    (folder / "linked.py").symlink_to(folder / "other" / "place.py")
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONFAULTHANDLER": "1",
    }
    found = Zygote(["t.py"], environ, folder)
    assert found.said.keys() == {"ready"}, found.said
    yield found
    found.close()


def both(zygote: Zygote, row: Row) -> tuple[Outcome, Outcome]:
    if row.program:
        (zygote.folder / "t.py").write_text(row.program)
    environ = dict(row.environ)
    error = {"TORCHELASTIC_ERROR_FILE": str(zygote.folder / "error.json")}
    cold = zygote.cold(row.words, **error, **environ)
    return cold, zygote.fork(row.words, [{**LIKE_TORCHRUNS, **environ}])


def compare(zygote: Zygote, row: Row) -> Outcome:
    cold, warm = both(zygote, row)
    told = re.compile(r"rdzv: process 0 \(local rank 0\) failed first, with .*\n")
    err = told.sub("", warm.err)
    assert (told.search(warm.err) is not None) == (warm.code != 0)
    assert (warm.code, row.same(warm.out), row.same(err)) == (
        cold.code,
        row.same(cold.out),
        row.same(cold.err),
    )
    return cold


@pytest.fixture(scope="module")
def shown(zygote: Zygote) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a process sees of itself, cold and warm."""
    cold, warm = both(zygote, Row("", SHOWS, ("t.py", "--lr", "3")))
    assert (cold.code, warm.code, cold.err, warm.err) == (0, 0, "", "")
    found = json.loads(cold.out), json.loads(warm.out)
    for one in found:
        one["environ"].pop("TORCHELASTIC_ERROR_FILE")
        one["c environ"] = [v for v in one["c environ"] if "ERROR_FILE" not in v]
    return found


@pytest.mark.parametrize("what", SEEN)
def test_a_process_sees_the_same_of_itself(
    shown: tuple[dict[str, Any], dict[str, Any]], what: str
) -> None:
    cold, warm = shown
    assert warm[what] == cold[what]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_program_does_the_same(zygote: Zygote, row: Row) -> None:
    compare(zygote, row)


@pytest.mark.parametrize(
    "row",
    [row if row.name in EACH_PUSH else at_night(row) for row in WITH_TORCH],
    ids=lambda row: row.name,
)
def test_a_program_with_torch_does_the_same(zygote: Zygote, row: Row) -> None:
    compare(zygote, row)


def test_the_page_names_all_that_is_compared() -> None:
    page = (ROOT / "docs/warm.md").read_text().partition("| | compared |")[2]
    table = page.partition("\n\n")[0]
    rows = [row.name for row in (*ROWS, *WITH_TORCH)]
    assert sorted(re.findall("`([^`]+)`", table)) == sorted([*SEEN, *rows])


def test_each_process_has_seeds_of_its_own(zygote: Zygote) -> None:
    (zygote.folder / "t.py").write_text(
        "import random, numpy, torch\n"
        "found = random.random(), numpy.random.rand(), torch.rand(1).item(), torch.initial_seed()\n"
        "print(' '.join(map(str, found)) + '\\n', end='')\n"
    )
    ranks = [{**LIKE_TORCHRUNS, "RANK": f"{n}", "LOCAL_RANK": f"{n}"} for n in range(3)]
    drawn = [zygote.fork(["t.py"], ranks).out.split("\n")[:-1] for _ in range(2)]
    words = [line.split() for lines in drawn for line in lines]
    assert [len({line[n] for line in words}) for n in range(4)] == [6] * 4


def test_what_ps_shows_of_a_process_is_its_own(zygote: Zygote) -> None:
    (zygote.folder / "t.py").write_text(
        "import pathlib\nprint(pathlib.Path('/proc/self/environ').read_bytes().split(b'\\0'))\n"
    )
    said = zygote.fork(["t.py"], [{**LIKE_TORCHRUNS, "NAME": "a" * 2000}]).out
    assert all(f"b'{name}={value}'" in said for name, value in LIKE_TORCHRUNS.items())
    assert "b'NAME=aaa" in said
    assert "WARM_ROOM" not in said


def test_memory_is_shared_with_the_zygote(zygote: Zygote) -> None:
    (zygote.folder / "t.py").write_text(
        "import json, pathlib\n"
        "lines = pathlib.Path('/proc/self/smaps_rollup').read_text().splitlines()[1:]\n"
        "print(json.dumps({l.split()[0]: int(l.split()[1]) for l in lines}))\n"
    )
    found = json.loads(zygote.fork(["t.py"]).out)
    private = found["Private_Dirty:"] + found["Private_Clean:"]
    assert private < found["Rss:"] / 3, found
