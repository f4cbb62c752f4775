"""The contracts of Open MPI, MPICH and Intel MPI, and what a launcher takes to every node."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable
from tests.worker.test_contracts import V6, table, words
from tests.worker.test_frameworks import (
    ALONE,
    RSH,
    UNEVEN,
    even,
    framework_variables,
    of,
    with_rows,
)

IPV6 = (
    "the addresses of the table are IPv6, but {} reads 'ADDRESS:PROCESSES' in its host file "
    "only with IPv4; give the nodes IPv4 addresses (--network chooses if they have both), or "
    "use Open MPI"
)
INCLUDE = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include")
MINE = {"OMPI_MCA_regx": "fwd", "OMPI_MCA_btl_tcp_if_exclude": "lo"}


def ipv6(second: str = "eth0", addresses: tuple[str, ...] = V6) -> EndpointTable:
    """Two nodes with IPv6 alone; the second one's interface has this name."""
    return with_rows(table(addresses, (2, 2)), "eth0", second, prefix_length=64)


def test_intel_mpi_takes_uneven_numbers_from_a_flag() -> None:
    uneven = of("intelmpi", "mpirun", "-l", "x", node=0, sealed=UNEVEN)
    assert uneven.argv == words("mpirun -machinefile /logs/node/hostfile.mpich -l x")
    assert "I_MPI_PERHOST" not in uneven.variables


REGX = {"OMPI_MCA_regx": "naive"}


@pytest.mark.parametrize(
    ("sealed", "environ", "networks"),
    [
        (ipv6(), {}, REGX | dict.fromkeys(INCLUDE, "eth0")),
        (ipv6("eth1"), {}, REGX),  # no interface that a node lacks
        (ipv6(addresses=("::1", "::1")), {}, {}),
        (ipv6(), MINE, dict.fromkeys(INCLUDE[1:], "eth0")),
        (table(("10.0.0.1", "10.0.1.2")), {}, {}),
    ],
    ids=["IPv6", "other interfaces", "one machine", "the user's", "several networks"],
)
def test_open_mpi_is_told_the_network_as_far_as_the_nodes_share_one(
    sealed: EndpointTable, environ: dict[str, str], networks: dict[str, str]
) -> None:
    made = of("openmpi", "x", node=0, sealed=sealed, environ=environ)
    found = framework_variables(made)
    of_network = {n: v for n, v in found.items() if n.endswith("_include") or n in REGX}
    assert of_network == networks
    assert made.environment(environ).items() >= environ.items()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("mpich x", "MPICH"),
        ("mpich mpiexec -np 4 x", "MPICH"),
        ("intelmpi x", "Intel MPI"),
        ("deepspeed --launcher mpich x.py", "MPICH"),
        ("deepspeed --launcher impi x.py", "Intel MPI"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_an_mpi_that_reads_no_ipv6_address_is_refused_on_a_table_of_them(
    command: str, name: str, rank: int
) -> None:
    with pytest.raises(UsageError) as refused:
        of(*command.split(), node=rank, sealed=ipv6())
    assert refused.value.message == IPV6.format(name)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("openmpi x", "mpirun"),
        ("openmpi /opt/mpi/bin/mpirun -np 4 x", "/opt/mpi/bin/mpirun"),
        ("deepspeed --launcher openmpi x.py", "mpirun"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_open_mpi_is_asked_for_ipv6_on_every_node_of_a_table_with_it_alone(
    command: str, program: str, rank: int
) -> None:
    for sealed, asked in ((ipv6(), [program]), (even(), [])):
        made = of(*command.split(), node=rank, sealed=sealed)
        assert [need.program for need in made.needs if need.lack] == asked


def test_open_mpis_own_variables_of_the_user_are_kept_and_those_of_the_nodes_replaced() -> None:
    kept = {"OMPI_MCA_btl_tcp_if_exclude": "lo", "OMPI_MCA_oob_tcp_if_include": "ib0"}
    removed = {"OMPI_MCA_plm": "slurm", "SLURM_JOBID": "7", "LOCAL_RANK": "0"}
    environ = kept | removed | {"OMPI_MCA_plm_rsh_agent": "ssh"}
    made = of("openmpi", "x", node=0, environ=environ)
    seen = made.environment(environ)
    agent = {"OMPI_MCA_plm_rsh_agent": RSH}
    assert {name: seen[name] for name in environ if name in seen} == kept | agent
    assert "OMPI_MCA_btl_tcp_if_include" not in seen  # both together are an error of mpirun's
    network = "rdzv would set 10.0.0.0/24, the network of the table"
    scheduler = "mpirun would take its nodes from there, not from the table"
    assert made.notes == [
        f"OMPI_MCA_plm_rsh_agent is {RSH} (from the table), not ssh",
        f"OMPI_MCA_oob_tcp_if_include=ib0 is kept as you set it: {network}",
        "LOCAL_RANK was removed: around mpirun it would be the same for every process",
        f"SLURM_JOBID was removed: {scheduler}",
        f"OMPI_MCA_plm was removed: {scheduler}",
    ]


# ---- what a launcher takes to every node --------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["mpich x", "intelmpi x", "horovod horovodrun x", "deepspeed --launcher pdsh x"]
)
def test_what_belongs_to_one_node_is_kept_from_a_launcher_that_takes_it_to_all(
    command: str,
) -> None:
    made = of(*command.split(), node=0, sealed=even())
    own = {
        "NODE_RANK": "0",
        "RDZV_NODE_ADDRESS": "10.0.0.1",
        "RDZV_HOSTFILE": "/logs/node/hostfile",
        "RDZV_HOSTFILE_MPICH": "/logs/node/hostfile.mpich",
        "RDZV_TABLE": "/logs/node/table.json",
        "RDZV_NOTICE_FILE": "/logs/node/notice.json",
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
    made = of("mpich", "x", node=0, sealed=with_rows(even(), "eth0", "eth0"))
    assert "NODE_RANK" in made.withheld
    assert made.variables["GLOO_SOCKET_IFNAME"] == "eth0"
    assert made.variables["NPROC_PER_NODE"] == "2"
    assert of("mpich", "x", node=0, sealed=UNEVEN).withheld["NPROC_PER_NODE"] == "2"
    assert of("mpich", "x", node=0, sealed=ALONE).withheld == {}
    assert of("openmpi", "x", node=0).withheld == {}  # gives each rank what its own node says
