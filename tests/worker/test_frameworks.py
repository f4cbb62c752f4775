"""The contracts of the frameworks beside torchrun: command lines, variables, files, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable
from tests.worker.test_contracts import V6, contract, table, words
from worker.contracts import (
    FRAMEWORKS,
    Contract,
    Need,
    Paths,
    ProgramOptions,
    check_command,
    files_of,
    is_led,
    make_contract,
)
from worker.contracts.framework import PROGRAMS

PATHS = Paths("/logs/node", "/opt/rdzv/bin/python", "/logs/node/bin", "/run/rdzv.sock")
STARTER = f"/opt/rdzv/bin/python -I -S {PROGRAMS}/processes.py"


def of(framework: str, *command: str, **how: Any) -> Contract:
    return contract(*command, framework=framework, paths=how.pop("paths", PATHS), **how)


def framework_variables(made: Contract) -> dict[str, str]:
    """What a contract sets beside the variables of every program."""
    return {one.name: one.value for one in made.explained if one.by_framework and not one.kept}


def even() -> EndpointTable:
    return table(nproc=(2, 2))


def same_interfaces(**change: Any) -> EndpointTable:
    rows = [row.model_copy(update={"interface": "eth0", **change}) for row in even().rows]
    return even().model_copy(update={"rows": rows})


# ---- what every framework has in common ---------------------------------------------------------


def test_every_node_has_both_hostfiles_and_the_table_by_address_and_in_the_order_of_ranks() -> None:
    sealed = table(nproc=(2, 1))
    files = files_of(sealed)
    described = json.loads(files.pop("table.json"))
    assert files == {
        "hostfile": "10.0.0.1 slots=2\n10.0.0.2 slots=1\n",
        "hostfile.mpich": "10.0.0.1:2\n10.0.0.2:1\n",
    }
    assert described == {
        "run": "llama",
        "launch_id": "k7f2a9c1xy",
        "epoch": 1,
        "digest": sealed.digest(),
        "master_address": "10.0.0.1",
        "master_port": 29500,
        "world_size": 3,
        "network": "",
        "transport": "",
        "nodes": [
            {
                "rank": rank,
                "slot": 10 + rank,
                "hostname": f"host-{rank}",
                "address": f"10.0.0.{rank + 1}",
                "interface": f"eth{rank}",
                "prefix_length": 24,
                "nproc_per_node": 2 - rank,
                "hcas": [],
            }
            for rank in (0, 1)
        ],
    }


def test_an_ipv6_host_has_brackets_only_where_a_colon_follows() -> None:
    files = files_of(table(V6, (2, 2)))
    assert files["hostfile"] == "fd00::1 slots=2\nfd00::2 slots=2\n"
    assert files["hostfile.mpich"] == "[fd00::1]:2\n[fd00::2]:2\n"


def test_the_program_is_told_where_its_files_and_its_agent_are() -> None:
    found = of("command", "make").variables
    assert {name: value for name, value in found.items() if name.startswith("RDZV_")} == {
        "RDZV_ID": "llama",
        "RDZV_SOCKET": "/run/rdzv.sock",
        "RDZV_HOSTFILE": "/logs/node/hostfile",
        "RDZV_HOSTFILE_MPICH": "/logs/node/hostfile.mpich",
        "RDZV_TABLE": "/logs/node/table.json",
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_files_and_socket_no_variable_names_them(framework: str) -> None:
    paths = Paths(folder="/logs/node", bin="/logs/node/bin")
    assert "RDZV_SOCKET" not in of(framework, "x.py", sealed=even(), paths=paths).variables
    if framework not in ("deepspeed", "openmpi", "mpich", "intelmpi"):
        made = of(framework, "x.py", sealed=even(), paths=Paths())
        assert not [name for name in made.variables if name.startswith("RDZV_HOST")]


@pytest.mark.parametrize("framework", ["deepspeed", "openmpi", "mpich", "intelmpi"])
def test_a_launcher_that_reads_a_hostfile_is_refused_where_there_is_none(framework: str) -> None:
    with pytest.raises(UsageError, match="this node's hostfile could not be written"):
        of(framework, "x.py", sealed=even(), paths=Paths(bin="/bin"))


def test_mpirun_is_refused_where_nothing_reaches_the_other_nodes() -> None:
    with pytest.raises(UsageError, match="this node has no 'rdzv rsh'"):
        of("openmpi", "x.py", paths=Paths(folder="/logs/node"))


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "bench"])
def test_no_framework_takes_an_empty_command(framework: str) -> None:
    with pytest.raises(UsageError, match="no COMMAND was given"):
        check_command([], framework)


@pytest.mark.parametrize(
    ("framework", "command", "led"),
    [
        ("torchrun", "train.py", False),
        ("env", "mpirun x", False),
        ("openmpi", "x", True),
        ("mpich", "x", True),
        ("intelmpi", "mpiexec x", True),
        ("deepspeed", "train.py --launcher pdsh", False),
        ("deepspeed", "--launcher pdsh train.py", True),
        ("deepspeed", "deepspeed --no_python --launcher=OPENMPI ./x", True),
        ("horovod", "train.py", False),
        ("horovod", "/opt/bin/horovodrun -np 4 --verbose python train.py", True),
    ],
)
def test_who_is_led_from_node_0_is_known_from_command_and_framework(
    framework: str, command: str, led: bool
) -> None:
    assert is_led(framework, command.split()) is led
    for rank in (0, 1):
        made = of(framework, *command.split(), rank=rank, sealed=even())
        assert (made.argv == []) is (led and rank == 1)


@pytest.mark.parametrize(
    ("framework", "ports"),
    [
        *((name, (29500, None)) for name in FRAMEWORKS if name != "tensorflow"),
        ("tensorflow", (29500, 29500)),
    ],
)
def test_the_port_has_to_be_free_where_somebody_listens(
    framework: str, ports: tuple[int | None, int | None]
) -> None:
    found = tuple(of(framework, "x.py", rank=rank, sealed=even()).port for rank in (0, 1))
    assert found == ports


# ---- torch.distributed.launch -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "launcher", "rest"),
    [
        ("train.py --lr 1", "python3 -m torch.distributed.launch", "train.py --lr 1"),
        (
            "/opt/bin/python3.11 -m torch.distributed.launch --use-env train.py",
            "/opt/bin/python3.11 -m torch.distributed.launch",
            "--use-env train.py",
        ),
    ],
)
def test_torch_distributed_launch_is_given_torchruns_flags(
    command: str, launcher: str, rest: str
) -> None:
    made = of("torch.distributed.launch", *command.split())
    assert made.argv == words(
        f"{launcher} --nnodes 2 --nproc-per-node 8 --rdzv-backend static --rdzv-id llama",
        f"--node-rank 1 --master-addr 10.0.0.1 --master-port 29500 {rest}",
    )
    python = launcher.split()[0]
    assert made.needs == (Need("torch", "pip install torch", python, ("torch",)),)
    assert made.fatal_workers


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python -m torch.distributed.launch --nnodes 2 x.py", "--nnodes stands in COMMAND"),
        ("python train.py", "COMMAND names 'python'"),
        ("python -m torch.distributed.launch --use_env", "COMMAND names no script or module"),
    ],
)
def test_what_torch_distributed_launch_cannot_be_told_is_refused(
    command: str, message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        check_command(command.split(), "torch.distributed.launch")


# ---- a process for each rank --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "options"),
    [
        (0, "--rank 0 --processes 2 --world 3 --node 0"),
        (1, "--rank 2 --processes 1 --world 3 --node 1"),
    ],
)
def test_env_starts_the_processes_of_uneven_nodes_with_their_global_ranks(
    rank: int, options: str
) -> None:
    made = of(
        "env",
        "train.py",
        "--gpu=$LOCAL_RANK",
        rank=rank,
        sealed=table(nproc=(2, 1)),
        grace=2.5,
    )
    assert made.argv == words(
        f"{STARTER} {options} --grace 2.5 -- python3 -u train.py --gpu=$LOCAL_RANK"
    )
    assert made.fatal_workers
    assert made.needs == (Need("python3", "", program="python3"),)


def test_a_rank_around_the_processes_is_removed_and_the_log_says_so() -> None:
    environ = {"RANK": "0", "LOCAL_RANK": "0"}
    made = of("env", "./x", environ=environ)
    assert not environ.keys() & made.environment(environ).keys()
    assert made.notes == [
        "RANK was removed: each process is given its own",
        "LOCAL_RANK was removed: each process is given its own",
    ]


def test_jax_is_told_its_coordinator_and_each_process_its_number() -> None:
    made = of("jax", "train.py", sealed=table(V6, (2, 2)), environ={"JAX_COORDINATOR_PORT": "1"})
    assert made.argv == words(
        f"{STARTER} --rank 2 --processes 2 --world 4 --node 1 --grace 10",
        "--set JAX_NUM_PROCESSES=$WORLD_SIZE --set JAX_PROCESS_ID=$RANK",
        "--set JAX_LOCAL_DEVICE_IDS=$LOCAL_RANK -- python3 -u train.py",
    )
    assert framework_variables(made) == {"JAX_COORDINATOR_ADDRESS": "[fd00::1]:29500"}
    assert made.notes == [
        "JAX_COORDINATOR_PORT was removed: the coordinator's place comes from the table"
    ]


def test_the_only_jax_process_of_a_node_has_all_its_devices() -> None:
    made = of("jax", "python", "train.py", sealed=table(nproc=(1, 1)))
    assert not [word for word in made.argv if word.startswith("JAX_LOCAL_DEVICE_IDS")]
    assert made.needs == (Need("jax", "pip install jax", "python", ("jax",)),)


# ---- accelerate ---------------------------------------------------------------------------------

FROM_TABLE = (
    "--num_machines 2 --num_processes 4 --machine_rank 1 --main_process_ip 10.0.0.1 "
    "--main_process_port 29500"
)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("train.py -x", f"accelerate launch {FROM_TABLE} --multi_gpu train.py -x"),
        (
            "/a/accelerate launch --mixed_precision bf16 train.py",
            f"/a/accelerate launch {FROM_TABLE} --multi_gpu --mixed_precision bf16 train.py",
        ),
        ("accelerate launch --cpu x.py", f"accelerate launch {FROM_TABLE} --cpu x.py"),
        (
            "--use_deepspeed x.py",
            (
                f"accelerate launch {FROM_TABLE} --deepspeed_multinode_launcher standard "
                "--use_deepspeed x.py"
            ),
        ),
        (
            "--config_file=a.yaml --deepspeed-multinode-launcher standard x.py",
            (
                f"accelerate launch {FROM_TABLE} --config_file=a.yaml "
                "--deepspeed-multinode-launcher standard x.py"
            ),
        ),
        ("accelerate-launch x.py", f"accelerate launch {FROM_TABLE} --multi_gpu x.py"),
    ],
)
def test_accelerate_is_given_machines_processes_and_the_master_from_the_table(
    command: str, argv: str
) -> None:
    assert of("accelerate", *command.split(), sealed=even()).argv == argv.split()


def test_one_process_of_accelerates_is_not_called_many() -> None:
    alone = even().model_copy(update={"rows": table(nproc=(1, 1)).rows[:1]})
    assert "--multi_gpu" not in of("accelerate", "x.py", rank=0, sealed=alone).argv


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("--num_processes 4 x.py", "--num_processes stands in COMMAND, and rdzv gives accelerate"),
        ("accelerate launch --machine-rank=1 x.py", "--machine-rank=1 stands in COMMAND"),
        ("--deepspeed_multinode_launcher pdsh x.py", ".* and that launcher goes by ssh"),
        ("accelerate launch --cpu", "COMMAND names no script or module for accelerate launch"),
    ],
)
def test_what_contradicts_accelerates_contract_is_refused(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        check_command(command.split(), "accelerate")


# ---- uneven nodes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "why"),
    [
        ("accelerate", "accelerate gives every node as many: it takes one total and divides it"),
        ("lightning", "Lightning takes devices x num_nodes for the number of its processes"),
        (
            "deepspeed",
            "DeepSpeed then numbers the local ranks wrongly (LOCAL_RANK = RANK % processes)",
        ),
    ],
)
def test_uneven_nodes_are_refused_by_name_and_with_the_reason(framework: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        of(framework, "x.py", sealed=table(nproc=(2, 1)))
    assert caught.value.message == (
        f"node 0 (host-0) has 2 processes and node 1 (host-1) has 1, and {why}"
    )


# ---- lightning ----------------------------------------------------------------------------------


def test_lightning_sees_no_rank_and_no_scheduler_that_would_beat_the_table() -> None:
    environ = {
        "LOCAL_RANK": "0",
        "SLURM_NTASKS": "4",
        "TORCHELASTIC_RUN_ID": "x",
        "SLURM_JOB_ID": "1",
    }
    made = of("lightning", "train.py", environ=environ, sealed=even())
    assert made.argv == words("python3 -u train.py")
    assert made.environment(environ).keys() & environ.keys() == {"SLURM_JOB_ID"}
    scheduler = "Lightning would take its ranks from there, and not from the table"
    assert made.notes == [
        "LOCAL_RANK was removed: Lightning numbers its processes itself",
        f"TORCHELASTIC_RUN_ID was removed: {scheduler}",
        f"SLURM_NTASKS was removed: {scheduler}",
    ]
    assert made.needs == (
        Need("lightning", "pip install lightning", "python3", ("lightning", "pytorch_lightning")),
    )


# ---- deepspeed ----------------------------------------------------------------------------------

DEEPSPEED = "--hostfile /logs/node/hostfile --master_addr 10.0.0.1 --master_port 29500"


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (
            "train.py --deepspeed",
            f"deepspeed {DEEPSPEED} --no_ssh --node_rank 1 train.py --deepspeed",
        ),
        (
            "/d/deepspeed --module package.train",
            f"/d/deepspeed {DEEPSPEED} --no_ssh --node_rank 1 --module package.train",
        ),
    ],
)
def test_deepspeed_runs_on_every_node_without_a_remote_shell(command: str, argv: str) -> None:
    made = of("deepspeed", *command.split(), sealed=even())
    assert made.argv == argv.split()
    assert framework_variables(made) == {}
    assert made.path_first == ""


def test_deepspeed_with_a_launcher_runs_on_node_0_where_ssh_is_rdzv_rsh() -> None:
    made = of("deepspeed", "--launcher", "pdsh", "train.py", rank=0, sealed=even())
    assert made.argv == words(f"deepspeed {DEEPSPEED} --launcher pdsh train.py")
    assert made.environment({"PATH": "/usr/bin"})["PATH"] == "/logs/node/bin:/usr/bin"
    assert [need.program for need in made.needs] == ["deepspeed", "pdsh"]
    served = of("deepspeed", "--launcher", "pdsh", "train.py", rank=1, sealed=even())
    assert [need.program for need in served.needs] == ["deepspeed"]


def test_deepspeed_by_open_mpi_is_told_the_network_that_it_would_guess() -> None:
    made = of("deepspeed", "--launcher=openmpi", "train.py", rank=0, sealed=even())
    assert made.argv == [
        *words(f"deepspeed {DEEPSPEED} --launcher_args"),
        "--mca btl_tcp_if_include 10.0.0.0/24",
        *words("--launcher=openmpi train.py"),
    ]
    assert framework_variables(made)["OMPI_MCA_plm_rsh_agent"] == "/logs/node/bin/rdzv-rsh"
    own = ["--launcher", "openmpi", "--launcher_args", "--mca a b", "train.py"]
    assert of("deepspeed", *own, rank=0, sealed=even()).argv[-5:] == own


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("--num_gpus 4 x.py", "--num_gpus stands in COMMAND, and rdzv gives deepspeed"),
        ("deepspeed -H hosts x.py", "-H stands in COMMAND"),
        ("--no_ssh x.py", "--no_ssh stands in COMMAND"),
        ("--launcher slurm x.py", "deepspeed --launcher slurm is none that can reach nodes"),
        ("deepspeed --no_ssh_check", "COMMAND names no script or module for deepspeed"),
    ],
)
def test_what_contradicts_deepspeeds_contract_is_refused(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        check_command(command.split(), "deepspeed")


# ---- MPI ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "launcher"),
    [("openmpi", "mpirun"), ("mpich", "mpiexec"), ("intelmpi", "mpiexec")],
)
@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("./prog -x", "LAUNCHER -np 4 ./prog -x"),
        ("train.py", "LAUNCHER -np 4 python3 -u train.py"),
        ("mpirun -np 3 -x A ./prog -H", "mpirun -np 3 -x A ./prog -H"),
        ("/opt/mpi/bin/mpiexec.hydra ./prog", "/opt/mpi/bin/mpiexec.hydra ./prog"),
    ],
)
def test_mpirun_in_command_is_used_as_it_is_and_put_before_anything_else(
    framework: str, launcher: str, command: str, argv: str
) -> None:
    check_command(command.split(), framework)
    made = of(framework, *command.split(), rank=0, sealed=even())
    assert made.argv == argv.replace("LAUNCHER", launcher).split()
    assert made.needs[0].program == made.argv[0]


def test_open_mpi_4_and_5_find_hosts_and_agent_in_the_environment() -> None:
    assert framework_variables(of("openmpi", "x", rank=0)) == {
        "OMPI_MCA_plm_rsh_agent": "/logs/node/bin/rdzv-rsh",
        "OMPI_MCA_orte_default_hostfile": "/logs/node/hostfile",
        "PRTE_MCA_plm_ssh_agent": "/logs/node/bin/rdzv-rsh",
        "PRTE_MCA_prte_default_hostfile": "/logs/node/hostfile",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24",
        "OMPI_MCA_oob_tcp_if_include": "10.0.0.0/24",
        "PRTE_MCA_prte_if_include": "10.0.0.0/24",
    }


def ipv6(interface: str = "eth0", *, loopback: bool = False) -> EndpointTable:
    """Two nodes with IPv6 alone; the second one's interface has this name."""
    sealed = table(("::1", "::1") if loopback else V6, (2, 2))
    first, second = (row.model_copy(update={"prefix_length": 64}) for row in sealed.rows)
    rows = [
        first.model_copy(update={"interface": "eth0"}),
        second.model_copy(update={"interface": interface}),
    ]
    return sealed.model_copy(update={"rows": rows})


def networks(made: Contract) -> dict[str, str]:
    """What a contract of Open MPI tells it of the network."""
    found = framework_variables(made)
    return {n: v for n, v in found.items() if n.endswith("_include") or n == "OMPI_MCA_regx"}


def test_open_mpi_is_told_of_ipv6_by_the_interfaces_name_and_takes_addresses_for_names() -> None:
    assert networks(of("openmpi", "x", rank=0, sealed=ipv6())) == {
        "OMPI_MCA_regx": "naive",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        "PRTE_MCA_prte_if_include": "eth0",
    }


def test_open_mpi_is_told_no_interface_that_a_node_with_ipv6_lacks() -> None:
    assert networks(of("openmpi", "x", rank=0, sealed=ipv6("eth1"))) == {"OMPI_MCA_regx": "naive"}


def test_open_mpi_on_one_machine_with_ipv6_is_told_no_network() -> None:
    assert networks(of("openmpi", "x", rank=0, sealed=ipv6(loopback=True))) == {}


def test_what_a_user_has_told_open_mpi_of_ipv6_is_kept() -> None:
    environ = {"OMPI_MCA_regx": "fwd", "OMPI_MCA_btl_tcp_if_exclude": "lo"}
    made = of("openmpi", "x", rank=0, sealed=ipv6(), environ=environ)
    assert made.environment(environ).items() >= environ.items()
    assert networks(made) == {
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        "PRTE_MCA_prte_if_include": "eth0",
    }


@pytest.mark.parametrize(
    ("framework", "command", "name"),
    [
        ("mpich", "x", "MPICH"),
        ("mpich", "mpiexec -np 4 x", "MPICH"),
        ("intelmpi", "x", "Intel MPI"),
        ("deepspeed", "--launcher mpich x.py", "MPICH"),
        ("deepspeed", "--launcher impi x.py", "Intel MPI"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_an_mpi_that_reads_no_ipv6_address_is_refused_on_a_table_of_them(
    framework: str, command: str, name: str, rank: int
) -> None:
    with pytest.raises(UsageError) as refused:
        of(framework, *command.split(), rank=rank, sealed=ipv6())
    assert refused.value.message == (
        f"the addresses of the table are IPv6, and {name} reads 'ADDRESS:PROCESSES' in its host "
        "file only with IPv4; give the nodes IPv4 addresses (--network chooses, where they have "
        "both), or use Open MPI"
    )


@pytest.mark.parametrize(
    ("framework", "command", "program"),
    [
        ("openmpi", "x", "mpirun"),
        ("openmpi", "/opt/mpi/bin/mpirun -np 4 x", "/opt/mpi/bin/mpirun"),
        ("deepspeed", "--launcher openmpi x.py", "mpirun"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_open_mpi_is_asked_for_ipv6_on_every_node_of_a_table_with_it_alone(
    framework: str, command: str, program: str, rank: int
) -> None:
    made = of(framework, *command.split(), rank=rank, sealed=ipv6())
    assert [need.program for need in made.needs if need.lack] == [program]
    made = of(framework, *command.split(), rank=rank, sealed=even())
    assert not [need for need in made.needs if need.lack]


def test_open_mpi_on_several_networks_is_told_none() -> None:
    made = of("openmpi", "x", rank=0, sealed=table(("10.0.0.1", "10.0.1.2")))
    assert not [name for name in made.variables if name.endswith("_include")]


def test_open_mpi_starts_the_nodes_of_one_machine_as_one_host() -> None:
    sealed = table(("127.0.0.1", "127.0.0.2"), (2, 2))
    made = of(
        "openmpi", "x", rank=0, sealed=sealed, environ={"OMPI_MCA_orte_default_hostfile": "mine"}
    )
    assert made.argv == words("mpirun -np 4 x")
    assert framework_variables(made) == {
        "OMPI_MCA_plm_rsh_agent": "/logs/node/bin/rdzv-rsh",
        "PRTE_MCA_plm_ssh_agent": "/logs/node/bin/rdzv-rsh",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    assert made.notes == ["OMPI_MCA_orte_default_hostfile was removed: all nodes are one machine"]


def test_open_mpis_own_variables_of_the_user_are_kept_and_those_of_the_nodes_replaced() -> None:
    environ = {
        "OMPI_MCA_btl_tcp_if_exclude": "lo",
        "OMPI_MCA_oob_tcp_if_include": "ib0",
        "OMPI_MCA_plm_rsh_agent": "ssh",
        "OMPI_MCA_plm": "slurm",
        "SLURM_JOBID": "7",
        "LOCAL_RANK": "0",
    }
    made = of("openmpi", "x", rank=0, environ=environ)
    seen = made.environment(environ)
    assert {name: seen.get(name) for name in environ} == {
        "OMPI_MCA_btl_tcp_if_exclude": "lo",
        "OMPI_MCA_oob_tcp_if_include": "ib0",
        "OMPI_MCA_plm_rsh_agent": "/logs/node/bin/rdzv-rsh",
        "OMPI_MCA_plm": None,
        "SLURM_JOBID": None,
        "LOCAL_RANK": None,
    }
    assert "OMPI_MCA_btl_tcp_if_include" not in seen  # both together are an error of mpirun's
    network = "rdzv would set 10.0.0.0/24, the network of the table"
    scheduler = "mpirun would take its nodes from there, and not from the table"
    assert made.notes == [
        "OMPI_MCA_plm_rsh_agent is /logs/node/bin/rdzv-rsh (from the table), not ssh",
        f"OMPI_MCA_oob_tcp_if_include=ib0 is kept as you set it: {network}",
        "LOCAL_RANK was removed: around mpirun it would be the same for every process",
        f"SLURM_JOBID was removed: {scheduler}",
        f"OMPI_MCA_plm was removed: {scheduler}",
    ]


def test_mpich_finds_hosts_agent_and_interface_in_the_environment() -> None:
    assert framework_variables(of("mpich", "x", rank=0)) == {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": "/logs/node/bin/rdzv-rsh",
        "HYDRA_HOST_FILE": "/logs/node/hostfile.mpich",
        "HYDRA_IFACE": "eth0",
    }


def test_intel_mpi_takes_even_numbers_from_a_variable_and_uneven_ones_from_a_flag() -> None:
    made = of("intelmpi", "x", rank=0, sealed=even())
    assert framework_variables(made) == {
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/logs/node/bin/rdzv-rsh",
        "I_MPI_HYDRA_HOST_FILE": "/logs/node/hostfile.mpich",
        "I_MPI_PERHOST": "2",
        "I_MPI_HYDRA_IFACE": "eth0",
    }
    uneven = of("intelmpi", "mpirun", "-l", "x", rank=0, sealed=table(nproc=(2, 1)))
    assert uneven.argv == words("mpirun -machinefile /logs/node/hostfile.mpich -l x")
    assert "I_MPI_PERHOST" not in uneven.variables


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("mpirun -np 4 -H a,b x", "-H"),
        ("mpirun --mca pml ob1 -x A=1 --hostfile f x", "--hostfile"),
        ("mpiexec -genv A 1 -f hosts x", "-f"),
        ("/opt/mpiexec.hydra -launcher-exec /bin/ssh x", "-launcher-exec"),
    ],
)
def test_hosts_in_mpiruns_flags_are_refused(command: str, flag: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag} stands in COMMAND, and rdzv gives mpi"):
        check_command(command.split(), "mpich")


def test_behind_a_flag_of_mpiruns_that_is_not_known_nothing_is_refused() -> None:
    check_command(["mpirun", "--new-flag", "-H", "x"], "openmpi")


# ---- what a launcher takes to every node --------------------------------------------------------

LED = [
    ("mpich", "x"),
    ("intelmpi", "x"),
    ("horovod", "horovodrun x"),
    ("deepspeed", "--launcher pdsh x"),
]


@pytest.mark.parametrize(("framework", "command"), LED)
def test_what_belongs_to_one_node_is_kept_from_a_launcher_that_takes_it_to_all(
    framework: str, command: str
) -> None:
    made = of(framework, *command.split(), rank=0, sealed=even())
    own = {
        "NODE_RANK": "0",
        "RDZV_HOSTFILE": "/logs/node/hostfile",
        "RDZV_HOSTFILE_MPICH": "/logs/node/hostfile.mpich",
        "RDZV_TABLE": "/logs/node/table.json",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
    }
    assert made.withheld == own
    seen = made.environment({"NODE_RANK": "7", "HOME": "/home"})
    assert not own.keys() & seen.keys()
    assert {"HOME": "/home", "MASTER_ADDR": "10.0.0.1"}.items() <= seen.items()
    assert own.items() <= made.served_environment({"NODE_RANK": "7"}).items()


def test_what_is_the_same_on_all_nodes_may_be_taken_to_them() -> None:
    made = of("mpich", "x", rank=0, sealed=same_interfaces())
    assert "NODE_RANK" in made.withheld
    assert made.variables["GLOO_SOCKET_IFNAME"] == "eth0"
    assert made.variables["NPROC_PER_NODE"] == "2"
    uneven = of("mpich", "x", rank=0, sealed=table(nproc=(2, 1)))
    assert uneven.withheld["NPROC_PER_NODE"] == "2"


def test_nccls_log_is_kept_where_the_processes_are_told_of_it() -> None:
    asked = {"nccl_log": "on", "nccl_file": "/logs/node.%p.log"}
    told = {
        (name, rank): of(name, "x", rank=rank, **asked).nccl_log
        for name in ("openmpi", "mpich")
        for rank in (0, 1)
    }
    assert told == {
        ("openmpi", 0): "/logs/node.%p.log",
        ("openmpi", 1): "/logs/node.%p.log",
        ("mpich", 0): "",
        ("mpich", 1): "/logs/node.%p.log",
    }


def test_on_a_single_node_nothing_is_kept_back() -> None:
    alone = even().model_copy(update={"rows": even().rows[:1]})
    assert of("mpich", "x", rank=0, sealed=alone).withheld == {}


def test_open_mpi_gives_each_rank_what_its_own_node_says() -> None:
    assert of("openmpi", "x", rank=0).withheld == {}


# ---- horovod ------------------------------------------------------------------------------------

HOROVOD = (
    "--set HOROVOD_RANK=$RANK --set HOROVOD_SIZE=$WORLD_SIZE --set HOROVOD_LOCAL_RANK=$LOCAL_RANK "
    "--set HOROVOD_LOCAL_SIZE=$LOCAL_WORLD_SIZE --set HOROVOD_CROSS_RANK=$NODE_RANK "
    "--set HOROVOD_CROSS_SIZE=2"
)


@pytest.mark.parametrize("rank", [0, 1])
def test_horovods_processes_meet_at_a_store_that_node_0_serves(rank: int) -> None:
    made = of("horovod", "train.py", rank=rank, sealed=even())
    serve = ["--serve"] if rank == 0 else []
    assert made.argv == [
        *words(f"{STARTER} --rank {2 * rank} --processes 2 --world 4 --node {rank} --grace 10"),
        *words(f"{HOROVOD} --set HOROVOD_HOSTNAME=10.0.0.{rank + 1} --store 10.0.0.1:29500"),
        *serve,
        *words("-- python3 -u train.py"),
    ]
    assert framework_variables(made) == {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "29500",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": f"eth{rank}",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "120",
    }


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (
            "horovodrun python x.py",
            "horovodrun --hostfile /logs/node/hostfile -np 4 python x.py",
        ),
        (
            "horovodrun -np 3 --verbose python x.py",
            "horovodrun --hostfile /logs/node/hostfile -np 3 --verbose python x.py",
        ),
    ],
)
def test_horovodrun_is_given_the_hosts_and_calls_ssh_by_the_agents(command: str, argv: str) -> None:
    made = of("horovod", *command.split(), rank=0, sealed=same_interfaces())
    assert made.argv == argv.split()
    assert made.path_first == "/logs/node/bin"
    assert framework_variables(made) == {"HOROVOD_GLOO_IFACE": "eth0"}


@pytest.mark.parametrize("flag", ["-H", "--hostfile", "--hosts"])
def test_hosts_in_horovodruns_flags_are_refused(flag: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag} stands in COMMAND"):
        check_command(["horovodrun", "-np", "4", flag, "a", "x"], "horovod")


# ---- tensorflow ---------------------------------------------------------------------------------


def tf_config(made: Contract) -> Any:
    return json.loads(made.variables["TF_CONFIG"])


def test_every_node_of_tensorflow_is_a_worker_at_its_own_address() -> None:
    made = of("tensorflow", "train.py", environ={"TF_CONFIG": "{}"})
    assert made.argv == words("python3 -u train.py")
    assert tf_config(made) == {
        "cluster": {"worker": ["10.0.0.1:29500", "10.0.0.2:29500"]},
        "task": {"type": "worker", "index": 1},
    }
    assert made.notes == [f"TF_CONFIG is {made.variables['TF_CONFIG']} (from the table), not {{}}"]


def test_a_chief_is_node_0_and_parameter_servers_are_the_last_nodes() -> None:
    four = table(tuple(f"10.0.0.{n}" for n in range(1, 5)), (1, 1, 1, 1))
    tasks = []
    for rank in range(4):
        made = of(
            "tensorflow",
            "x.py",
            rank=rank,
            sealed=four,
            tf_chief=True,
            tf_ps=1,
        )
        assert tf_config(made)["cluster"] == {
            "chief": ["10.0.0.1:29500"],
            "worker": ["10.0.0.2:29500", "10.0.0.3:29500"],
            "ps": ["10.0.0.4:29500"],
        }
        tasks.append(tuple(tf_config(made)["task"].values()))
    assert tasks == [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]


def test_a_cluster_without_a_worker_is_refused() -> None:
    with pytest.raises(UsageError, match=r"with --tf-ps 1 and --tf-chief no worker is left of 2"):
        of("tensorflow", "x.py", tf_chief=True, tf_ps=1)


def test_nodes_of_one_machine_listen_at_a_port_each() -> None:
    sealed = table(("127.0.0.1", "127.0.0.2"), (1, 1))
    for rank in (0, 1):
        made = of("tensorflow", "x.py", rank=rank, sealed=sealed)
        assert made.port == 29500 + rank
        assert tf_config(made)["cluster"]["worker"] == ["127.0.0.1:29500", "127.0.0.2:29501"]


def test_an_ipv6_worker_has_brackets() -> None:
    cluster = tf_config(of("tensorflow", "x.py", sealed=table(V6)))["cluster"]
    assert cluster == {"worker": ["[fd00::1]:29500", "[fd00::2]:29500"]}


# ---- size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "tensorflow"])
def test_what_a_node_is_told_does_not_grow_with_the_nodes(framework: str) -> None:
    many = table(tuple(f"10.0.{n >> 8}.{n & 255}" for n in range(1, 1001)), (2,) * 1000)
    made = make_contract(["x.py"], many, 12, {}, ProgramOptions(framework), paths=PATHS)
    assert sum(map(len, [*made.argv, *made.variables.values()])) < 2_000
