"""What is missing on a node is named, with what installs it, and without importing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rows import rows
from tests.worker.test_contracts import V6, contract, table
from tests.worker.test_user_python import interpreter, script
from worker.contracts import FRAMEWORKS, needs_of
from worker.contracts.advice import WrongCommand
from worker.contracts.framework import Need, Paths
from worker.contracts.script import Script, script_of
from worker.machine.user_python import has_module
from worker.preflight.needs import missing_of, missing_script, refuse_program

PATHS = Paths(folder="/logs/node", bin="/logs/node/bin")
LIGHTNING = Need(
    "lightning", "pip install lightning", "python3", ("lightning", "pytorch_lightning")
)


def site(prefix: Path) -> Path:
    return prefix / "lib/python3.12/site-packages"


def missing(*needs: Need, path: Path, **environ: str) -> str:
    return missing_of(needs, {"PATH": str(path), **environ})


def test_a_launcher_that_is_not_on_the_path_is_named_with_what_installs_it(tmp_path: Path) -> None:
    need = Need("accelerate", "pip install accelerate", program="accelerate")
    assert missing(need, path=tmp_path) == (
        "'accelerate' is not on this node's PATH; install accelerate in the job's environment (pip "
        "install accelerate), or activate that environment before rdzv is started "
        f"(PATH is {tmp_path})"
    )
    script(tmp_path / "accelerate", "#!/bin/sh")
    assert missing(need, path=tmp_path) == ""


def test_an_interpreter_that_has_no_torch_is_refused_before_its_ranks_fail(tmp_path: Path) -> None:
    """torchrun may be another environment's, which has it."""
    python = interpreter(tmp_path)
    script(tmp_path / "bin/torchrun", "#!/bin/sh")
    needs = needs_of("torchrun", ["python3", "train.py"], leads=True)
    assert missing(*needs, path=tmp_path / "bin").startswith(
        f"torch is not installed for '{python}' on this node; install it in the job's environment"
    )
    (site(tmp_path) / "torch").mkdir()
    assert missing(*needs, path=tmp_path / "bin") == ""


NOT_ON_PATH = "is not on this node's PATH ({0})"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("x", NOT_ON_PATH),
        ("{0}/x", "is not executable (chmod +x, or name its interpreter)"),
        (".", "is a folder on this node, not a program"),
        ("/tmp", "is a folder on this node, not a program"),
    ],
)
def test_a_users_program_is_not_to_be_installed(tmp_path: Path, program: str, words: str) -> None:
    (tmp_path / "x").write_text("")
    program = program.format(tmp_path)
    told = f"'{program}' of COMMAND {words.format(tmp_path)}"
    assert missing(Need(program, "", program=program), path=tmp_path) == told


def test_a_users_program_that_is_absent_is_told_with_the_folder(tmp_path: Path) -> None:
    told = f"./x does not exist in {Path.cwd()}"
    assert missing(Need("./x", "", program="./x"), path=tmp_path) == told


@pytest.mark.parametrize("head", ["#!{0}/gone/python3.12", "#! {0}/gone/python -u\n", "#!{0}/sh"])
def test_a_launcher_whose_environment_was_moved_cannot_start(tmp_path: Path, head: str) -> None:
    need = Need("accelerate", "pip install accelerate", program="accelerate")
    found = script(tmp_path / "accelerate", head.format(tmp_path))
    told = f"'{found}' cannot start on this node: its interpreter '{tmp_path}/"
    assert missing(need, path=tmp_path).startswith(told)
    script(tmp_path / "accelerate", "#!/usr/bin/env nosuch-python")
    assert missing(need, path=tmp_path) == ""


def test_a_path_that_leads_nowhere_is_not_looked_for_on_path(tmp_path: Path) -> None:
    needs = needs_of("torchrun", ["/nosuch/python", "train.py"], leads=True)
    assert missing(*needs, path=tmp_path) == "/nosuch/python does not exist on this node"


def test_an_endless_word_is_cut_where_it_is_named(tmp_path: Path) -> None:
    words = missing(Need("", "", program="x" * 130_000), path=tmp_path)
    assert words.startswith("'xxx")
    assert words.endswith(f"' of COMMAND {NOT_ON_PATH.format(tmp_path)}")
    assert len(words) < 500


def test_a_package_that_the_programs_python_does_not_have_is_named(tmp_path: Path) -> None:
    python = interpreter(tmp_path)
    assert missing(LIGHTNING, path=tmp_path / "bin") == (
        f"lightning is not installed for '{python}' on this node; install it in the job's "
        "environment (pip install lightning), or put that environment first on PATH"
    )


@pytest.mark.parametrize(
    "entry",
    [
        *("lightning/__init__.py", "pytorch_lightning/__init__.py", "lightning.py"),
        "lightning.cpython-312-x86_64-linux-gnu.so",
        "lightning-2.6.6.dist-info/direct_url.json",  # installed for editing
    ],
)
def test_a_package_is_found_in_every_form_that_it_may_have(tmp_path: Path, entry: str) -> None:
    interpreter(tmp_path)
    file = site(tmp_path) / entry
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert missing(LIGHTNING, path=tmp_path / "bin") == ""


def test_a_package_is_found_where_pythonpath_or_a_link_of_the_python_leads(tmp_path: Path) -> None:
    interpreter(tmp_path / "env")
    (tmp_path / "elsewhere/lightning").mkdir(parents=True)
    path = tmp_path / "env/bin"
    assert missing(LIGHTNING, path=path, PYTHONPATH=f"x:{tmp_path / 'elsewhere'}") == ""
    (site(tmp_path / "env") / "more.pth").write_text(f"import os\n\n{tmp_path / 'elsewhere'}\n")
    assert missing(LIGHTNING, path=path) == ""


def test_a_python_of_which_nothing_is_known_is_not_judged(tmp_path: Path) -> None:
    interpreter(tmp_path)
    site(tmp_path).rmdir()
    assert missing(LIGHTNING, path=tmp_path / "bin") == ""
    (tmp_path / "bin/python3").unlink()
    script(tmp_path / "bin/python3", "#!/bin/sh")  # a shim: who knows where it leads
    for program in ("sh", "python3"):
        assert has_module(program, {"PATH": str(tmp_path / "bin")}, ["lightning"]) is None


# ---- whose mpiexec it is ------------------------------------------------------------------------

OPEN_MPI = "mpiexec (OpenRTE) 4.1.4"
OPEN_MPI_5 = "mpiexec (Open MPI) 5.0.11"
HYDRA = "HYDRA build details:\n    Version:    5.0.2"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)"


def prints(path: Path, text: str) -> None:
    """A launcher that prints this, whatever it is asked."""
    script(path, "#!/bin/sh").write_text(f'#!/bin/sh\necho "{text}"\n')


def of_mpi(framework: str, folder: Path) -> str:
    """What is said of a launcher of MPI in this folder."""
    needs = FRAMEWORKS[framework].needs(["./prog"])
    return missing_of(needs, {"PATH": f"{folder}:/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("framework", "version", "whose", "instead"),
    [
        *(("mpich", told, "Open MPI", "openmpi") for told in (OPEN_MPI, OPEN_MPI_5)),
        ("intelmpi", OPEN_MPI, "Open MPI", "openmpi"),
        *((framework, HYDRA, "MPICH", "mpich") for framework in ("intelmpi", "openmpi")),
        ("openmpi", INTEL, "Intel MPI", "intelmpi"),
        *(("mpich", HYDRA, "", ""), ("intelmpi", INTEL, "", "")),
        ("mpich", INTEL, "", ""),  # it reads what MPICH is told
        *(("openmpi", told, "", "") for told in (OPEN_MPI, OPEN_MPI_5)),
        *(("mpich", told, "", "") for told in ("", "invalid mpiexec argument --version")),
    ],
)
def test_an_mpiexec_that_would_not_read_the_table_is_refused_and_others_are_taken(
    tmp_path: Path, framework: str, version: str, whose: str, instead: str
) -> None:
    program = tmp_path / ("mpirun" if framework == "openmpi" else "mpiexec")
    prints(program, version)
    wanted = {"mpich": "MPICH", "intelmpi": "Intel MPI", "openmpi": "Open MPI"}[framework]
    words = (
        f"'{program}' is {whose}'s, and would not start processes on the other nodes as "
        f"{wanted}'s does; use --framework {instead}, or put {wanted}'s first on PATH"
    )
    assert of_mpi(framework, tmp_path) == (words if whose else "")


@pytest.mark.real_time
def test_an_mpiexec_that_never_tells_its_version_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.preflight.needs._VERSION_SECONDS", 0.2)
    script(tmp_path / "mpiexec", "#!/bin/sh").write_text("#!/bin/sh\nexec sleep 60\n")
    assert of_mpi("mpich", tmp_path) == ""


WITHOUT_IPV6 = (
    "belongs to an Open MPI that was built without IPv6, but the addresses of the table are "
    "IPv6; install one that was built with --enable-ipv6, or give the nodes IPv4 addresses "
    "(--network chooses if they have both)"
)


@pytest.mark.parametrize(
    ("told", "at", "words"),
    [
        ("IPv6 support: no", "own", WITHOUT_IPV6),
        ("IPv6 support: yes", "own", ""),
        ("", "own", ""),
        ("IPv6 support: no", "other", ""),  # another Open MPI's
    ],
)
def test_an_open_mpi_without_ipv6_is_refused_where_the_table_needs_it(
    tmp_path: Path, told: str, at: str, words: str
) -> None:
    needs = contract("./prog", framework="openmpi", sealed=table(V6), paths=PATHS).needs
    prints(tmp_path / "own/mpirun", "")
    prints(tmp_path / at / "ompi_info", f"  {told}")
    said = missing_of(needs, {"PATH": f"{tmp_path}/own:{tmp_path}/other:/usr/bin:/bin"})
    assert said == (f"'{tmp_path / 'own/mpirun'}' {words}" if words else "")


def test_only_the_node_that_starts_mpiexec_asks_whose_it_is() -> None:
    for framework in ("openmpi", "mpich", "intelmpi"):
        everywhere, started = FRAMEWORKS[framework].needs(["./prog"])
        assert (everywhere.everywhere, everywhere.rivals) == (True, ())
        assert (started.everywhere, started.rivals != ()) == (False, True)


SCRIPTS = """
torchrun   | train.py --epochs 3                                             | train.py
torchrun   | torchrun --max-restarts 3 --log-dir=x src/train.py              | src/train.py
torchrun   | python -m torch.distributed.run --tee 3 train.py                | train.py
torchrun   | train --epochs 3                                                | train
torchrun   | python3.11 -u -O train.py --epochs 3                            | train.py
accelerate | train.py                                                        | train.py
accelerate | accelerate launch --mixed_precision bf16 --multi_gpu x.py       | x.py
deepspeed  | deepspeed train.py --deepspeed                                  | train.py
command    | python train.py                                                 | train.py
command    | /opt/bin/python3.12 -u -B train.py -m x                         | train.py
command    | bash run.sh -c 3                                                | run.sh
env        | train.py                                                        | train.py
lightning  | train.py                                                        | train.py
"""
NO_SCRIPT = """
torchrun   | python -m a.b; python -X dev t.py; python -c pass
torchrun   | -m package.train; --module package.train; --mod package.train; run-$LOCAL_RANK.py
torchrun   | --no-python ./train; --no_python train; --a-flag-of-tomorrow train.py; -r3 train.py
accelerate | accelerate launch -m train; --a_flag_of_tomorrow train.py
deepspeed  | --no_python train
command    | python -m train; python -c pass; python; python -X dev train.py; ./train.sh x
command    | bash -c ./x.sh; bash -l run.sh; sh; env A=1 python train.py
env        | -m train; train-$RANK.py
openmpi    | mpirun -np 4 python train.py
bench      |
torch.distributed.launch | train.py
"""


@pytest.mark.parametrize(("framework", "command", "script"), rows(SCRIPTS))
def test_the_script_of_a_command_is_known(framework: str, command: str, script: str) -> None:
    found = script_of(framework, command.split(), {})
    assert found is not None
    assert found.path == script


@pytest.mark.parametrize(("framework", "commands"), rows(NO_SCRIPT))
def test_nothing_is_said_of_what_may_need_no_script(framework: str, commands: str) -> None:
    known = [one for one in commands.split(";") if script_of(framework, one.split(), {})]
    assert known == []


@pytest.mark.parametrize("name", ["PET_MODULE", "PET_NO_PYTHON", "PET_RUN_PATH"])
def test_torchrun_may_be_told_by_a_variable_that_it_is_no_script(name: str) -> None:
    assert script_of("torchrun", ["train.py"], {name: "1"}) is None


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a program in this folder."""
    monkeypatch.chdir(tmp_path)
    return {"PATH": str(tmp_path / "bin")}


def test_an_absent_script_is_told_with_the_folder(tmp_path: Path, environ: dict[str, str]) -> None:
    assert missing_script(Script("train.py"), environ) == f"train.py does not exist in {tmp_path}"
    absent = "/nosuch/x.py does not exist on this node"
    assert missing_script(Script("/nosuch/x.py"), environ) == absent
    (tmp_path / "train.py").write_text("")
    assert missing_script(Script("train.py"), environ) == ""
    assert " exist in /" in missing_script(Script("train.py/x.py"), environ)
    assert missing_script(None, environ) == ""


def test_a_launch_folder_that_is_not_here_is_named_with_what_to_do(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    launched = environ | {"RDZV_LAUNCH_FOLDER": "/nosuch/exp"}
    words = (
        "the launch folder /nosuch/exp does not exist here: copy it to this node, or launch from"
    )
    said = missing_script(Script("train.py"), launched)
    assert said.startswith(f"train.py does not exist in {tmp_path}; {words}")
    said = missing_script(Script("/nosuch/exp/x.py"), launched)
    assert said.startswith(f"/nosuch/exp/x.py does not exist on this node; {words}")
    absent = "/other/x.py does not exist on this node"
    assert missing_script(Script("/other/x.py"), launched) == absent
    by_slurm = environ | {"SLURM_SUBMIT_DIR": "/nosuch/exp"}
    assert words in missing_script(Script("train.py"), by_slurm)
    assert words in missing_of(needs_of("command", ["./run"], leads=True), launched)
    for folder in (str(tmp_path), "\0"):
        here = environ | {"RDZV_LAUNCH_FOLDER": folder}
        assert missing_script(Script("train.py"), here) == f"train.py does not exist in {tmp_path}"


def test_a_shell_finds_its_script_on_the_path_too(tmp_path: Path, environ: dict[str, str]) -> None:
    assert missing_script(Script("run.sh", on_path=True), environ) != ""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/run.sh").write_text("true")
    assert missing_script(script_of("command", ["bash", "run.sh"], {}), environ) == ""
    assert missing_script(script_of("command", ["python", "run.sh"], {}), environ) != ""


@pytest.mark.parametrize(
    "head",
    ["\x7fELF\x02\0", "#!/bin/sh\necho", "#! /usr/bin/env bash\n", "#!/usr/local/bin/zsh -f\n"],
)
@pytest.mark.parametrize("word", ["{0}/tool", "./tool", "tool"])
def test_a_file_that_python_cannot_run_is_not_left_to_torchrun(
    tmp_path: Path, environ: dict[str, str], head: str, word: str
) -> None:
    (tmp_path / "tool").write_text(head)
    command = [word.format(tmp_path), "serve"]
    with pytest.raises(WrongCommand, match="is not a Python script, but torchrun"):
        refuse_program(command, "torchrun", environ)
    refuse_program(command, "env", environ)
    refuse_program(command, "torchrun", {**environ, "PET_NO_PYTHON": "1"})
    refuse_program(["--no-python", *command], "torchrun", environ)


@pytest.mark.parametrize(
    "head",
    [
        *("print()", "", "#!/usr/bin/env python3\n", "#!/usr/bin/env -S uv run --script\n"),
        "#!/bin/sh\n'''exec' \"/a long/bin/python\" \"$0\" \"$@\"\n' '''\nimport sys\n",
    ],
)
def test_a_file_that_python_may_run_is_a_script_whatever_its_name(
    tmp_path: Path, environ: dict[str, str], head: str
) -> None:
    (tmp_path / "ray").write_text(head)
    (tmp_path / "folder").mkdir()
    for word in ("ray", f"{tmp_path}/ray", "./folder"):
        refuse_program([word], "torchrun", environ)


@pytest.mark.parametrize("path", ["/" + "x" * 300, "/a\0b"])
def test_what_the_disk_does_not_tell_refuses_nobody(path: str) -> None:
    assert missing_script(Script(path), {"PATH": ""}) == ""


def test_what_only_rank_0_starts_is_needed_there_alone() -> None:
    command = ["deepspeed", "--launcher", "pdsh", "train.py"]
    names = [[n.name for n in needs_of("deepspeed", command, leads=r)] for r in (True, False)]
    assert names == [["deepspeed", "pdsh"], ["deepspeed"]]
