"""Which machines a launch runs on: the dialects of lists and files, and who gets which slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.plan.hostlist import Host, place, processes_of, read_hostfile, read_hostlist
from launcher.plan.named_hosts import on_named_hosts
from launcher.plan.plan import Plan, Site, Spec, make_plan
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError
from tests.launcher.command import rdzv

OWN = ["n0.cluster.example", "localhost", "127.0.0.1", "::1", "10.0.0.5", "fd00::5"]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("n1", Host("n1")),
        ("10.0.0.7", Host("10.0.0.7")),
        ("n1:8", Host("n1", slots=8)),
        ("[fd00::7]", Host("fd00::7")),
        ("[fd00::7]:8", Host("fd00::7", slots=8)),
        ("ada.l@n1:8", Host("n1", slots=8, user="ada.l")),
    ],
)
def test_an_item_of_a_list_is_a_host(text: str, host: Host) -> None:
    assert read_hostlist([text]) == [host]
    assert read_hostfile(f"{text}\n", "hosts") == [host]


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("n1 slots=8", Host("n1", slots=8)),
        ("  n1\tslots = 8  max_slots=16  # the new one", Host("n1", slots=8)),
        ("n1 user=ada port=2222 slots=2", Host("n1", slots=2, user="ada", port=2222)),
    ],
)
def test_a_line_of_a_file_may_say_more(line: str, host: Host) -> None:
    assert read_hostfile(f"# a comment\n\n{line}\n", "hosts") == [host]


def test_a_list_is_read_in_its_order_whether_in_one_option_or_in_several() -> None:
    assert [host.name for host in read_hostlist(["n2, n10", "n1"])] == ["n2", "n10", "n1"]


@pytest.mark.parametrize(
    ("lines", "slots"),
    [
        (["n1:4", "n2:2", "N1:4"], [8, 2]),
        (["n1", "n1:3", "n1", "n2"], [5, None]),
    ],
)
def test_a_host_that_is_named_again_has_more_slots(
    lines: list[str], slots: list[int | None]
) -> None:
    found = read_hostfile("\n".join(lines), "hosts")
    assert [(host.name, host.slots) for host in found] == list(
        zip(["n1", "n2"], slots, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1\n-oProxyCommand=id\n", "hosts:2: '-oProxyCommand=id' is no host"),
        ("n$(id)\n", "hosts:1: 'n$(id)' is no host"),
        ("\nn1:\n", "hosts:2: 'n1:' is no host"),
        ("n1:2:3\n", "hosts:1: 'n1:2:3' is no host"),
        ("ab:2:3\n", "hosts:1: 'ab:2:3' is no IPv6 address"),
        ("n1:0\n", "hosts:1: slots=0 is no number from 1 to 4096"),
        ("n1 slots=many\n", "hosts:1: slots=many is no number from 1 to 4096"),
        ("n1 port=65536\n", "hosts:1: port=65536 is no number from 1 to 65535"),
        ("n1 slot=8\n", "hosts:1: 'slot=8' is not known"),
        ("n1 8\n", "hosts:1: '8' is not known"),
        ("# nobody\n\n", "hosts names no host"),
    ],
)
def test_what_is_no_host_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_hostfile(text, "hosts")
    assert caught.value.message == message


@pytest.mark.parametrize("text", ["", "n1,,n2", "n1,", "n1 slots"])
def test_a_list_with_a_hole_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--hostlist"):
        read_hostlist([text])


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (Host("n1", slots=8), "n1"),
        (Host("n1", user="ada", port=2222), "ada@n1:2222"),
        (Host("fd00::7"), "[fd00::7]"),
        (Host("fd00::7", port=22), "[fd00::7]:22"),
    ],
)
def test_where_ssh_goes_to(host: Host, text: str) -> None:
    assert host.destination == text


@pytest.mark.parametrize(
    ("name", "is_here"),
    [
        ("n0", True),
        ("N0.cluster.example", True),
        ("n0.cluster.elsewhere", False),
        ("n00", False),
        ("localhost", True),
        ("10.0.0.5", True),
        ("fd00:0::5", True),
        ("10.0.0.50", False),
        ("127.0.0.2", False),
    ],
)
def test_this_machine_is_known_by_its_names_and_addresses(name: str, is_here: bool) -> None:
    assert Host(name).is_one_of(OWN) is is_here


def placed(
    names: str, *, nnodes: str | None = None, local_node: bool = True, spares: int = 0
) -> list[str]:
    hosts = read_hostlist([names])
    found = place(hosts, nnodes=nnodes, local_node=local_node, own_names=OWN, spares=spares)
    return [host.name for host in found]


@pytest.mark.parametrize(
    ("names", "nnodes", "expected"),
    [
        ("n0,n1,n2", None, ["n0", "n1", "n2"]),
        ("n1,n0,n2", "3", ["n0", "n1", "n2"]),
        ("n1,n2,10.0.0.5", "2:3", ["10.0.0.5", "n1", "n2"]),
        ("n1,n2", "3", ["localhost", "n1", "n2"]),
        ("n1,n2", "2:3", ["localhost", "n1", "n2"]),
        ("localhost", None, ["localhost"]),
    ],
)
def test_this_machine_gets_slot_0_and_the_others_follow_in_their_order(
    names: str, nnodes: str | None, expected: list[str]
) -> None:
    assert placed(names, nnodes=nnodes) == expected


def test_without_a_node_here_the_order_is_that_of_the_list() -> None:
    for nnodes in (None, "3"):
        assert placed("n1,n0,n2", local_node=False, nnodes=nnodes) == ["n1", "n0", "n2"]


@pytest.mark.parametrize("nnodes", [None, "2", "4"])
def test_a_list_that_may_or_may_not_mean_this_machine_is_refused(nnodes: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        placed("n1,n2", nnodes=nnodes)
    assert caught.value.message == (
        "slot 0 runs on this machine (n0.cluster.example), and the hosts do not name it: they are "
        "2: n1, n2"
    )
    assert caught.value.hint == (
        "with --no-local-node all nodes are started on these hosts; --nnodes 3 adds this machine "
        "to them; an entry that is this machine under another name can be written as localhost"
    )


@pytest.mark.parametrize(("nnodes", "local_node"), [("2", True), ("4", False), ("2:4", True)])
def test_another_number_of_nodes_is_refused(nnodes: str, local_node: bool) -> None:
    with pytest.raises(UsageError) as caught:
        placed("n0,n1,n2", nnodes=nnodes, local_node=local_node)
    assert caught.value.message == (
        f"--nnodes {nnodes} does not fit the hosts, which are 3: n0, n1, n2"
    )
    assert caught.value.hint == "give --nnodes 3, or leave it away"


def test_spares_have_machines_of_their_own() -> None:
    assert placed("n0,n1,n2", nnodes="2", spares=1) == ["n0", "n1", "n2"]
    assert placed("n1,n2", nnodes="2", spares=1) == ["localhost", "n1", "n2"]
    with pytest.raises(UsageError) as caught:
        placed("n0,n1,n2", nnodes="3", spares=1)
    assert caught.value.message == (
        "--nnodes 3 with --spares 1 does not fit the hosts, which are 3: n0, n1, n2"
    )
    assert caught.value.hint == "give --nnodes 2, or leave it away"
    with pytest.raises(UsageError, match="--spares 1 leaves no node of the hosts: 1: n0"):
        placed("n0", spares=1)


def test_a_machine_that_is_named_in_two_ways_is_refused() -> None:
    with pytest.raises(UsageError, match="n0 and 10\\.0\\.0\\.5 are both this machine"):
        placed("n0,n1,10.0.0.5")


@pytest.mark.parametrize(
    ("names", "expected"),
    [("n1,n2", None), ("n1:8,n2:8", "8"), ("n1:8,n2:4,n3:8", "8,4,8"), ("n1:2", "2")],
)
def test_slots_are_processes(names: str, expected: str | None) -> None:
    found = processes_of(read_hostlist([names]))
    assert (found and str(found)) == expected


def test_slots_on_some_hosts_alone_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        processes_of(read_hostlist(["n1:8,n2"]))
    assert caught.value.message == "n2 has no number of slots, and other hosts have one"


# ---- from the options ----------------------------------------------------------------------------


def test_options_say_more_than_the_hosts_do(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    settings = LaunchSettings(hostlist=["localhost,n1,n2"], spares=1, scheduler_profile=own)
    found, hosts = on_named_hosts(settings)
    assert (found.nnodes, len(hosts), found.starter) == ("2", 3, str(own))
    assert on_named_hosts(LaunchSettings(nnodes="2")) == (LaunchSettings(nnodes="2"), ())
    settings = LaunchSettings(hostlist=["localhost:8,n1:4"])
    found, hosts = on_named_hosts(settings)
    assert hosts == ("localhost", "n1")
    assert (found.nnodes, found.nproc_per_node, found.scheduler) == ("2", "8,4", "ssh")
    settings = LaunchSettings(
        hostlist=["localhost:8,n1"], nproc_per_node="1", scheduler="manual", nnodes="1:2"
    )
    found, hosts = on_named_hosts(settings)
    assert (found.nnodes, found.nproc_per_node, found.scheduler) == ("1:2", "1", "manual")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hostlist": ["n1"], "hostfile": "f"}, "--hostlist and --hostfile name the hosts twice"),
        (
            {"hostlist": ["localhost,n1"], "scheduler": "local"},
            "--scheduler local starts all nodes on this machine, and hosts are named",
        ),
        ({"hostfile": "/nonexistent/hosts"}, "the hostfile /nonexistent/hosts cannot be read: "),
    ],
)
def test_hosts_that_cannot_be_meant_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        on_named_hosts(LaunchSettings.model_validate(given))
    assert caught.value.message.startswith(message)


def test_the_hosts_slots_count_unless_processes_are_asked_for() -> None:
    hosts = ("--hostlist", "localhost:8,n1:8", "--rdzv-id", "llama", "--dry-run")
    for env, count in (({}, "8"), ({"GPUS_PER_NODE": "4"}, "4")):
        shown = rdzv("launch", *hosts, "--", "train.py", env=env).stdout
        assert "ssh://n1" in shown
        assert "rdzv worker --parent $$" in shown
        assert f"--nnodes 2 --nproc-per-node {count} " in shown


def test_every_slot_has_its_host_and_its_variable_cannot_be_set_otherwise() -> None:
    def plan(**settings: object) -> Plan:
        return make_plan(
            LaunchSettings.model_validate({"nnodes": "3", **settings}),
            ["train.py"],
            {},
            Site(Spec("worker.sh", ""), hosts=("n0", "ada@n1", "[fd00::7]:22")),
            run="llama",
            launch_id="k7f2a9c1xy",
        )

    hosts = [plan().submission(slot, 1).variables["HOST"] for slot in range(3)]
    assert hosts == ["n0", "ada@n1", "[fd00::7]:22"]
    with pytest.raises(UsageError, match="--set HOST: rdzv itself gives this variable"):
        plan(set=["HOST=n9"])
