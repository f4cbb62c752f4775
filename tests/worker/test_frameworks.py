"""The contracts of the frameworks beside torchrun: command lines, variables, files, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import RestartFacts
from rendezvous.wire.table import EndpointTable
from tests.support.rows import rows
from tests.worker.test_contracts import V6, contract, table, words
from worker.contracts import FRAMEWORKS, Contract, check_command, make_contract
from worker.contracts.files import files_of
from worker.contracts.framework import Need, Paths
from worker.contracts.variables import ProgramOptions

PATHS = Paths("/logs/node", "/opt/rdzv/bin/python", "/logs/node/bin", "/run/rdzv.sock")
LAUNCH = "torch.distributed.launch"
READ_A_HOSTFILE = ("deepspeed", "openmpi", "mpich", "intelmpi")
RSH = "/logs/node/bin/rdzv-rsh"


def of(framework: str, *command: str, **how: Any) -> Contract:
    return contract(*command, framework=framework, paths=how.pop("paths", PATHS), **how)


def framework_variables(made: Contract) -> dict[str, str]:
    """What a contract sets beside the variables of every program."""
    return {one.name: one.value for one in made.explained if one.by_framework and not one.kept}


def even() -> EndpointTable:
    return table(nproc=(2, 2))


def with_rows(sealed: EndpointTable, *interfaces: str, **change: Any) -> EndpointTable:
    """The table, with these interfaces and other values in the rows."""
    rows = [
        replace(row, **({"interface": name} | change))
        for row, name in zip(sealed.rows, interfaces, strict=False)
    ]
    return sealed.model_copy(update={"rows": rows})


UNEVEN = table(nproc=(2, 1))
ALONE = with_rows(table(nproc=(1, 1)), "eth0")
# ---- what every framework has in common ---------------------------------------------------------


def test_an_ipv6_address_has_brackets_in_the_hostfile_that_has_a_colon() -> None:
    files = files_of(table(V6, (2, 2)))
    assert files["hostfile"] == "fd00::1 slots=2\nfd00::2 slots=2\n"
    assert files["hostfile.mpich"] == "[fd00::1]:2\n[fd00::2]:2\n"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_files_and_socket_no_variable_names_them(framework: str) -> None:
    paths = Paths(folder="/logs/node", bin="/logs/node/bin")
    assert "RDZV_SOCKET" not in of(framework, "x.py", sealed=even(), paths=paths).variables
    if framework not in READ_A_HOSTFILE:
        made = of(framework, "x.py", sealed=even(), paths=Paths())
        assert not [name for name in made.variables if name.startswith("RDZV_HOST")]


@pytest.mark.parametrize(
    ("framework", "how", "message"),
    [
        *(
            (name, {"paths": Paths(bin="/bin")}, "this node's hostfile could not be written")
            for name in READ_A_HOSTFILE
        ),
        ("openmpi", {"paths": Paths(folder="/logs/node")}, "this node has no 'rdzv rsh'"),
        *(
            (name, {"sealed": UNEVEN}, rf"node 0 \(host-0\) has 2 processes and node 1 .*{why}")
            for name, why in (
                ("accelerate", "divides one total number of processes evenly between the nodes"),
                ("lightning", "uses devices x num_nodes as the number of its processes"),
                ("deepspeed", r"numbers the local ranks wrongly \(LOCAL_RANK = RANK % processes\)"),
            )
        ),
        (
            "tensorflow",
            {"tf_chief": True, "tf_ps": 1},
            "with --tf-ps 1 and --tf-chief, none of the",
        ),
    ],
)
def test_a_node_or_a_table_that_a_framework_cannot_use_is_refused(
    framework: str, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        of(framework, "x.py", **{"sealed": even(), **how})


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "bench"])
def test_no_framework_takes_an_empty_command(framework: str) -> None:
    with pytest.raises(UsageError, match=r"^no COMMAND was given"):
        check_command([], framework)


LED = """
torchrun  | train.py                                           | no
env       | mpirun x                                           | no
openmpi   | x                                                  | led
mpich     | x                                                  | led
intelmpi  | mpiexec x                                          | led
deepspeed | train.py --launcher pdsh                           | no
deepspeed | --launcher pdsh train.py                           | led
deepspeed | deepspeed --no_python --launcher=OPENMPI ./x       | led
horovod   | train.py                                           | no
horovod   | /opt/bin/horovodrun -np 4 --verbose python train.py | led
"""


@pytest.mark.parametrize(("framework", "command", "led"), rows(LED))
def test_who_is_led_from_node_0_is_known_from_command_and_framework(
    framework: str, command: str, led: str
) -> None:
    assert FRAMEWORKS[framework].is_led(command.split()) is (led == "led")
    for rank in (0, 1):
        made = of(framework, *command.split(), node=rank, sealed=even())
        assert (made.argv == []) is (led == "led" and rank == 1)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_port_has_to_be_free_where_somebody_listens(framework: str) -> None:
    found = [of(framework, "x.py", node=rank, sealed=even()).port for rank in (0, 1)]
    assert found == [29500, 29500 if framework == "tensorflow" else None]


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "tensorflow"])
def test_what_a_node_is_told_does_not_grow_with_the_nodes(framework: str) -> None:
    many = table(tuple(f"10.0.{n >> 8}.{n & 255}" for n in range(1, 1001)), (2,) * 1000)
    made = make_contract(["x.py"], many, 12, {}, ProgramOptions(framework), paths=PATHS)
    assert sum(map(len, [*made.argv, *made.variables.values()])) < 2_000


# ---- command lines ------------------------------------------------------------------------------

GIVEN = {
    "launch": (
        "-m torch.distributed.launch --nnodes 2 --nproc-per-node 2 --rdzv-backend static "
        "--rdzv-id llama --node-rank 1 --master-addr 10.0.0.1 --master-port 29500"
    ),
    "accelerate": (
        "launch --num_machines 2 --num_processes 4 --machine_rank 1 --main_process_ip 10.0.0.1 "
        "--main_process_port 29500"
    ),
    "deepspeed": "--hostfile /logs/node/hostfile --master_addr 10.0.0.1 --master_port 29500",
}
"""What a launcher is given from the table on node 1, which `{}` stands for."""


ARGV = """
launch     | train.py --lr 1               | python3 {} train.py --lr 1
launch     | /a/python3.11 -m LAUNCH --use-env t.py | /a/python3.11 {} --use-env t.py
accelerate | train.py -x                   | accelerate {} --multi_gpu train.py -x
accelerate | /a/accelerate launch -p b x.py | /a/accelerate {} --multi_gpu -p b x.py
accelerate | --use_fsdp x.py               | accelerate {} --use_fsdp x.py
accelerate | --use_deepspeed x.py          | accelerate {} DS standard --use_deepspeed x.py
accelerate | --config_file=a DS standard x.py | accelerate {} --config_file=a DS standard x.py
accelerate | accelerate-launch x.py        | accelerate {} --multi_gpu x.py
lightning  | train.py                      | python3 -u train.py
tensorflow | train.py                      | python3 -u train.py
deepspeed  | t.py --deepspeed              | deepspeed {} --no_ssh --node_rank 1 t.py --deepspeed
deepspeed  | /d/deepspeed --module t       | /d/deepspeed {} --no_ssh --node_rank 1 --module t
openmpi    | ./prog -x                     | mpirun -np 4 ./prog -x
mpich      | ./prog -x                     | mpiexec -np 4 ./prog -x
intelmpi   | train.py                      | mpiexec -np 4 python3 -u train.py
openmpi    | mpirun -np 3 -x A ./prog -H   | mpirun -np 3 -x A ./prog -H
mpich      | /o/mpiexec.hydra ./prog       | /o/mpiexec.hydra ./prog
intelmpi   | mpirun ./prog                 | mpirun ./prog
""".replace("DS", "--deepspeed_multinode_launcher").replace("LAUNCH", LAUNCH)


@pytest.mark.parametrize(("framework", "command", "argv"), rows(ARGV))
def test_a_launcher_is_given_the_table_before_the_users_words_and_mpirun_is_as_it_is(
    framework: str, command: str, argv: str
) -> None:
    name = LAUNCH if framework == "launch" else framework
    is_mpi = framework in ("openmpi", "mpich", "intelmpi")
    check_command(command.split(), name)
    made = of(name, *command.split(), node=0 if is_mpi else 1, sealed=even())
    assert made.argv == argv.format(GIVEN.get(framework)).split()
    assert made.path_first == ""
    assert not is_mpi or made.needs[0].program == made.argv[0]
    if framework == "launch":
        assert made.needs == (Need("torch", "pip install torch", made.argv[0], ("torch",)),)
        assert made.fatal_workers


REFUSED = """
LAUNCH | python -m LAUNCH --nnodes 2 x.py | COMMAND contains --nnodes
LAUNCH | python train.py                         | COMMAND names 'python'
LAUNCH | python -m LAUNCH --use_env | COMMAND does not name a script or module
accelerate | --num_processes 4 x.py                    | COMMAND contains --num_processes
accelerate | accelerate launch --machine-rank=1 x.py   | COMMAND contains --machine-rank=1
accelerate | --deepspeed_multinode_launcher pdsh x.py  | .* and that launcher uses ssh
accelerate | accelerate launch --cpu                   | .* not name a script or module for acc
deepspeed  | --num_gpus 4 x.py                         | .*s --num_gpus, but rdzv gives deepspeed
deepspeed  | deepspeed -H hosts x.py                   | COMMAND contains -H
deepspeed  | --no_ssh x.py                             | COMMAND contains --no_ssh
deepspeed  | --launcher slurm x.py                     | .*--launcher slurm cannot reach
deepspeed  | deepspeed --no_ssh_check                  | .* not name a script or module for deep
mpich      | mpirun -np 4 -H a,b x                     | COMMAND contains -H, but rdzv gives mpi
mpich      | mpirun --mca pml ob1 -x A=1 --hostfile f x | COMMAND contains --hostfile
mpich      | mpiexec -genv A 1 -f hosts x              | COMMAND contains -f
mpich      | /opt/mpiexec.hydra -launcher-exec ssh x   | COMMAND contains -launcher-exec
horovod    | horovodrun -np 4 -H a x                   | COMMAND contains -H
horovod    | horovodrun -np 4 --hostfile a x           | COMMAND contains --hostfile
horovod    | horovodrun -np 4 --hosts a x              | COMMAND contains --hosts
""".replace("LAUNCH", LAUNCH)


@pytest.mark.parametrize(("framework", "command", "message"), rows(REFUSED))
def test_a_command_that_contradicts_the_contract_is_refused(
    framework: str, command: str, message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        check_command(command.split(), framework)


def test_behind_a_flag_of_mpiruns_that_is_not_known_nothing_is_refused() -> None:
    check_command(["mpirun", "--new-flag", "-H", "x"], "openmpi")


def test_one_process_of_accelerates_is_not_called_many() -> None:
    assert "--multi_gpu" not in of("accelerate", "x.py", node=0, sealed=ALONE).argv


# ---- a process for each rank --------------------------------------------------------------------


def test_the_only_jax_process_of_a_node_has_all_its_devices() -> None:
    made = of("jax", "python", "train.py", sealed=table(nproc=(1, 1)))
    assert not [word for word in made.argv if word.startswith("JAX_LOCAL_DEVICE_IDS")]
    assert made.needs == (Need("jax", "pip install jax", "python", ("jax",)),)


# ---- deepspeed and horovod by a launcher --------------------------------------------------------


def test_deepspeed_by_open_mpi_is_told_the_network_that_it_would_guess() -> None:
    made = of("deepspeed", "--launcher=openmpi", "train.py", node=0, sealed=even())
    given = words(f"deepspeed {GIVEN['deepspeed']} --launcher_args")
    network = "--mca btl_tcp_if_include 10.0.0.0/24"
    assert made.argv == [*given, network, "--launcher=openmpi", "train.py"]
    assert framework_variables(made)["OMPI_MCA_plm_rsh_agent"] == RSH
    own = ["--launcher", "openmpi", "--launcher_args", "--mca a b", "train.py"]
    assert of("deepspeed", *own, node=0, sealed=even()).argv[-5:] == own


# ---- tensorflow ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "workers", "port"),
    [
        (("10.0.0.1", "10.0.0.2"), ["10.0.0.1:29500", "10.0.0.2:29500"], 29500),
        (("127.0.0.1", "127.0.0.2"), ["127.0.0.1:29500", "127.0.0.2:29501"], 29501),
        (V6, ["[fd00::1]:29500", "[fd00::2]:29500"], 29500),
    ],
)
def test_every_node_of_tensorflow_is_a_worker_at_its_own_address(
    addresses: tuple[str, ...], workers: list[str], port: int
) -> None:
    made = of("tensorflow", "x.py", sealed=table(addresses), environ={"TF_CONFIG": "{}"})
    told = made.variables["TF_CONFIG"]
    task = {"type": "worker", "index": 1}
    assert json.loads(told) == {"cluster": {"worker": workers}, "task": task}
    assert made.notes == [f"TF_CONFIG is {told} (from the table), not {{}}"]
    assert made.port == port


# ---- restarts -----------------------------------------------------------------------------------

ONCE = RestartFacts(restarts=1, max_restarts=3, replacements=2, last_failure="node 1 failed: ü")


def test_a_failure_in_another_alphabet_is_told_in_any_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.fsdecode", lambda text: text.decode("latin-1"))
    told = of("env", "x.py", restarts=ONCE).variables["RDZV_LAST_FAILURE"]
    assert told.encode("latin-1").decode() == ONCE.last_failure
    with pytest.raises(ValueError, match="control characters"):
        RestartFacts(last_failure="two\nlines")
    with pytest.raises(ValueError, match="at most 600"):
        RestartFacts(last_failure="x" * 601)


@pytest.mark.parametrize(
    ("framework", "command", "environ", "given"),
    [
        ("torchrun", ["x.py", "--tee", "3"], {}, True),
        ("torchrun", ["torchrun", "--max-restarts=2", "x.py"], {}, True),
        ("torchrun", ["python", "-m", "torch.distributed.run", "x.py"], {}, True),
        ("torch.distributed.launch", ["--use-env", "x.py"], {}, True),
        ("bench", [], {}, True),
        ("accelerate", ["accelerate", "launch", "--mixed_precision", "no", "x.py"], {}, True),
        ("torchrun", ["torchrun", "--log_dir", "/logs", "x.py"], {}, False),
        ("torchrun", ["torchrun", "--log-dir=/logs", "x.py"], {}, False),
        ("torchrun", ["torchrun", "-r", "3", "x.py"], {}, False),
        ("torchrun", ["torchrun", "-t3", "x.py"], {}, False),
        ("torchrun", ["torchrun", "--redir", "3", "x.py"], {}, False),
        ("torchrun", ["torchrun", "--logs-specs", "own", "x.py"], {}, False),
        ("torchrun", ["x.py"], {"PET_TEE": "3"}, False),
        ("torchrun", ["x.py"], {"PET_LOG_DIR": "/logs"}, False),
        ("accelerate", ["accelerate", "launch", "--tee", "3", "x.py"], {}, False),
        ("deepspeed", ["x.py"], {}, False),
        ("command", ["torchrun", "x.py"], {}, False),
    ],
)
def test_torchruns_folder_goes_with_the_agent_unless_a_person_wants_it(
    framework: str, command: list[str], environ: dict[str, str], given: bool
) -> None:
    """It has the logs of the ranks where they are redirected."""
    paths = replace(PATHS, scratch="/tmp/rdzv-1/torchelastic-1")
    argv = of(framework, *command, sealed=even(), paths=paths, environ=environ).argv
    flags = [word.replace("_", "-") for word in argv]
    assert ("/tmp/rdzv-1/torchelastic-1" in argv) is given
    assert not given or flags[flags.index("--log-dir") + 1] == paths.scratch.replace("_", "-")
