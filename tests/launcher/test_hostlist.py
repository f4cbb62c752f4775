"""Which machines a launch runs on: the dialects of lists and files, and who gets which slot."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.plan.host_entries import Host, name_problem, read_hostfile, read_hostlist
from launcher.plan.hostlist import notes_of, place, processes_of
from launcher.plan.named_hosts import on_named_hosts
from launcher.plan.plan import Plan, Site, Spec
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import ExitCode, UsageError
from rendezvous.wire.types import MOST_PROCESSES
from tests.launcher.command import plan_of, rdzv
from worker.counts import Processes

OWN = ["n0.cluster.example", "localhost", "127.0.0.1", "::1", "10.0.0.5", "fd00::5"]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("n1", Host("n1")),
        ("10.0.0.7", Host("10.0.0.7")),
        ("n1:8", Host("n1", slots=8)),
        ("fd00::7", Host("fd00::7")),
        ("[fd00::7]:8", Host("fd00::7", slots=8)),
        ("ada.l@gpu_box-3.example:8", Host("gpu_box-3.example", slots=8, user="ada.l")),
    ],
)
def test_an_item_of_a_list_is_a_host(text: str, host: Host) -> None:
    assert read_hostlist([text]) == [host]
    assert read_hostfile(f"{text}\n", "hosts") == [host]


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("n1 max-slots=2 slots=4", Host("n1", slots=4)),
        ("  n1\tslots = 8  max_slots=16  # the new one", Host("n1", slots=8)),
        ("n1 user=ada port=2222 slots=2", Host("n1", slots=2, user="ada", port=2222)),
    ],
)
def test_a_line_of_a_file_may_say_more(line: str, host: Host) -> None:
    assert read_hostfile(f"# a comment\n\n{line}\n", "hosts") == [host]


def test_a_list_is_read_in_its_order_and_a_host_that_is_named_again_has_more_slots() -> None:
    assert [host.name for host in read_hostlist(["n2, n10", "n1"])] == ["n2", "n10", "n1"]
    for text, slots in (("n1:4\nn2:2\nN1:4", [8, 2]), ("n1\nn1:3\nn1\nn2", [5, None])):
        found = read_hostfile(text, "hosts")
        assert [(host.name, host.slots) for host in found] == [("n1", slots[0]), ("n2", slots[1])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1\n-oProxyCommand=id\n", "hosts:2: '-oProxyCommand=id' is not a host"),
        ("n$(id)\n", "hosts:1: 'n$(id)' is not a host"),
        ("\nn1:\n", "hosts:2: 'n1:' is not a host"),
        ("n1:2:3\n", "hosts:1: 'n1:2:3' is not a host"),
        ("ab:2:3\n", "hosts:1: 'ab:2:3' is not an IPv6 address"),
        ("n1:0\n", "hosts:1: slots=0 is not a number from 1 to 4096"),
        ("n1 slots=many\n", "hosts:1: slots=many is not a number from 1 to 4096"),
        ("n1 port=65536\n", "hosts:1: port=65536 is not a number from 1 to 65535"),
        ("n1 slot=8\n", "hosts:1: 'slot=8' is not known"),
        ("n1 8\nn2 gpu\n", "hosts:2: 'gpu' is not known"),
        ("n1:4097\n", "hosts:1: 'n1:4097' is read as 4097 processes on n1, and a node has at most"),
        ("n1:2222\nn1:2223\n", "hosts: n1 is named 2 times, which is read as 4445 processes"),
        ("n1 29600\n", "hosts:1: 'n1 29600' is read as 29600 processes on n1, and a node has at"),
        ("gpu[1-2]:9999\n", "hosts:1: 'gpu[1-2]:9999' is read as 9999 processes on gpu1, and a"),
        ("n[3-1]\n", "hosts:1: 'n[3-1]' is not a list of hosts: [3-1] runs backwards; write [1-3]"),
        (
            "n[1-]\n",
            "hosts:1: 'n[1-]' is not a list of hosts: [1-] is neither a number nor a range",
        ),
        (
            "n[1-9:2]\n",
            "hosts:1: 'n[1-9:2]' is not a list of hosts: [1-9:2] is neither a number nor a",
        ),
        ("12345\n", "hosts:1: '12345' is a number, not a host"),
        ("10.0.0.256\n", "hosts:1: '10.0.0.256' is not an IPv4 address"),
        ("10.0.1\n", "hosts:1: '10.0.1' is not an IPv4 address"),
        ("a..b\n", "hosts:1: 'a..b' has an empty label: there is no name before or between its"),
        (
            f"{'a' * 64}.b\n",
            f"hosts:1: '{'a' * 59}\u2026' has a label of 64 characters",
        ),
        (f"{'a.' * 127}\n", f"hosts:1: '{'a.' * 29}a\u2026' has 254 characters, and a name has at"),
        (
            "n1\u2013n4\n",
            "hosts:1: 'n1\u2013n4' has the character '\u2013' (U+2013), and",
        ),
        ("fe80::1%eth0\n", "hosts:1: 'fe80::1%eth0' is a link-local address, which ssh takes from"),
        ("[fe80::1]:8\n", "hosts:1: 'fe80::1' is a link-local address, which ssh takes from its"),
        ("ssh://n1\n", "hosts:1: 'ssh://n1' is not a host"),
        ("n1 max_slots=\n", "hosts:1: 'max_slots=' has no value"),
        ("n1 slots=4 max-slots=2\n", "hosts:1: 'max-slots=2' is less than slots=4 of n1"),
        ("n1:4 slots_max=2\n", "hosts:1: 'slots_max=2' is less than slots=4 of n1"),
        ("n1 max_slots=many\n", "hosts:1: max_slots=many is not a number from 1 to 1000000"),
        ("n1 slots=\n", "hosts:1: 'slots=' has no value"),
        ("n1 slot=\n", "hosts:1: 'slot=' is not known"),
        (",n1\n", "hosts:1: there is no host before a comma"),
        ("slots=8\n", "hosts:1: 'slots=8' is not a host"),
        ("# nobody\n\n", "hosts does not name a host"),
    ],
)
def test_what_is_no_host_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_hostfile(text, "hosts")
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("n1:9999", "the port of its sshd is written 'n1 port=2222', or Port in ~/.ssh/config"),
        ("n1:2222,n1:2222", "the port of its sshd is written 'n1 port=2222', or Port in ~/.ssh/"),
        ("gpu{1..4}", "a range is written with brackets: gpu[01-04], gpu[1,3]"),
        ("@hosts", "a file with hosts is given by --hostfile FILE; for example: n1"),
        ("^hosts", "a file with hosts is given by --hostfile FILE; for example: n1"),
        ("./hosts.txt", "a file with hosts is given by --hostfile FILE; for example: n1"),
        (
            "n1/0*8+n2/0*8",
            "processes are written n1:8, and hosts have commas",
        ),
        ("n1:ppn=8+n2:ppn=8", "processes are written n1:8, and hosts have commas"),
        ("n1;n2", "hosts have commas between them: n1,n2"),
        ("ssh://n1", "write it without 'ssh://': for example: n1"),
        ("fe80::1%eth0", "write an alias of the host, and in ~/.ssh/config: Host ALIAS, HostName"),
        ("caf\u00e9", "type the name again, or write its ASCII form (xn--...)"),
    ],
)
def test_a_form_of_others_is_refused_with_what_to_write(word: str, advice: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_hostlist([word])
    assert advice in caught.value.hint


NODES = {"h1": 8, "h2": 8}
FORMS = {
    "LSB_HOSTS": " ".join(["h1"] * 8 + ["h2"] * 8),
    "LSB_MCPU_HOSTS": "h1 8 h2 8",
    "LSB_DJOB_HOSTFILE": "h1\n" * 8 + "h2\n" * 8,
    "PBS_NODEFILE": "h1\nh2\n" * 8,
    "PE_HOSTFILE": "h1 8 all.q@h1 UNDEFINED\nh2 8 all.q@h2 <NULL>\n",
    "LSF, a host a line": "h1 8\nh2 8\n",
    "Open MPI": "h1 slots=8 max_slots=16\nh2 slots=8 max-slots=8\n",
    "Open MPI, spaced": "h1\tslots = 8\nh2 slots =8\n",
    "MPICH, Hydra": "h1:8\nh2:8\n",
    "Horovod": "h1:8,h2:8",
    "DeepSpeed": "# workers\n\nh1 slots=8\nh2 slots=8 # the new one\n",
    "pdsh, Slurm": "h[1-2]:8",
    "a range with slots": "h[1,2] slots=8\n",
    "Windows": "\ufeffh1:8\r\nh2:8\r\n",
    "a comma at the end": "h1:8,h2:8,",
    "a comma at each line's end": "h1:8,\nh2:8,\n",
    "no line end": "h1:8\nh2:8",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_list_is_read_in_every_form_of_the_field(form: str) -> None:
    text = FORMS[form]
    assert {host.name: host.slots for host in read_hostfile(text, form)} == NODES
    if "\n" not in text:
        assert {host.name: host.slots for host in read_hostlist([text])} == NODES
        # As click splits the variable RDZV_HOSTLIST.
        assert {host.name: host.slots for host in read_hostlist(text.split())} == NODES


def test_machines_that_are_named_unequally_often_have_as_many_processes() -> None:
    assert [host.slots for host in read_hostlist(["h1 h1 h2"])] == [2, 1]
    assert [host.slots for host in read_hostlist(["h1,H1.,h1.,[fd00::7],fd00:0::7"])] == [3, 2]
    assert [host.slots for host in read_hostlist(["h1,ada@h1"])] == [None, None]
    ports = read_hostlist(["10.0.0.1 port=2222,10.0.0.1 port=2223"])
    assert [host.destination for host in ports] == ["10.0.0.1:2222", "10.0.0.1:2223"]


def test_ranges_multiply_and_keep_their_digits() -> None:
    names = [host.name for host in read_hostlist(["ada@gpu[01-02,05]-ib[0-1]:4", "n[9-10]"])]
    assert names == [
        *(f"gpu{n}-ib{i}" for n in ("01", "02", "05") for i in "01"),
        *("n9", "n10"),
    ]


@pytest.mark.parametrize("name", ["h_1", "H1", "h1.", "n-1", "1a", "a.1", "10.0.0.1", "localhost"])
def test_names_that_machines_have_are_taken(name: str) -> None:
    assert name_problem(name) == ""
    assert [host.name for host in read_hostlist([name])] == [name]


@given(st.lists(st.text("h1:,[]-=@ #.%\u00e9\t", max_size=12), max_size=4))
def test_no_text_breaks_the_reading_of_hosts(items: list[str]) -> None:
    for file in (False, True):
        with contextlib.suppress(UsageError):
            for host in read_hostfile("\n".join(items), "f") if file else read_hostlist(items):
                assert not name_problem(host.name)
                assert host.slots is None or 1 <= host.slots <= MOST_PROCESSES


@pytest.mark.parametrize("text", ["", "n1,,n2", ",n1", "n1 slots"])
def test_a_list_with_a_hole_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--hostlist"):
        read_hostlist([text])


def test_where_ssh_goes_to() -> None:
    assert Host("n1", slots=8).destination == "n1"
    assert Host("n1", user="ada", port=2222).destination == "ada@n1:2222"
    assert Host("fd00::7").destination == "[fd00::7]"
    assert Host("fd00::7", port=22).destination == "[fd00::7]:22"


def test_this_machine_is_known_by_its_names_and_addresses() -> None:
    for name in ("n0", "N0.cluster.example", "localhost", "10.0.0.5", "fd00:0::5"):
        assert Host(name).is_one_of(OWN), name
    for name in ("n0.cluster.elsewhere", "n00", "10.0.0.50", "127.0.0.2"):
        assert not Host(name).is_one_of(OWN), name


@pytest.mark.parametrize(
    ("given_by", "hint"),
    [
        ("--nnodes", "give --nnodes 2, or remove it"),
        ("NUM_NODES", "--nnodes 2 overrides NUM_NODES; or change it there, or remove it"),
    ],
)
def test_a_number_of_nodes_that_does_not_fit_is_named_by_what_gave_it(
    given_by: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        placed("n0,n1", "16", given_by=given_by)
    assert caught.value.message.startswith(f"{given_by} 16 does not match the hosts, which are 2:")
    assert caught.value.hint == hint


def placed(names: str, nnodes: str | None = None, *, local_node: bool = True, **more: Any) -> str:
    hosts = read_hostlist([names])
    found = place(hosts, nnodes=nnodes, local_node=local_node, own_names=OWN, **more)
    return ",".join(host.name for host in found)


@pytest.mark.parametrize(
    ("names", "nnodes", "more", "expected"),
    [
        ("n0,n1,n2", None, {}, "n0,n1,n2"),
        ("n1,n0,n2", "3", {}, "n0,n1,n2"),  # this machine gets slot 0, the others follow
        ("n1,n2,10.0.0.5", "2:3", {}, "10.0.0.5,n1,n2"),
        ("n1,n2", "3", {}, "localhost,n1,n2"),
        ("n1,n2", "2:3", {}, "localhost,n1,n2"),
        ("localhost", None, {}, "localhost"),
        ("n1,n2,n3", None, {"local_node": False}, "n1,n2,n3"),
        ("n1,n0,n2", "3", {"local_node": False}, "n1,n0,n2"),
        ("n0,n1,n2", "2", {"spares": 1}, "n0,n1,n2"),
        ("n1,n2", "2", {"spares": 1}, "localhost,n1,n2"),
        ("n0,n1,n2", "1", {"spares": 1, "standby": 1}, "n0,n1,n2"),
    ],
)
def test_every_slot_gets_its_machine(
    names: str, nnodes: str | None, more: dict[str, Any], expected: str
) -> None:
    assert placed(names, nnodes, **more) == expected


UNNAMED = (
    "slot 0 runs on this machine (n0.cluster.example), but the hosts do not include it: they are "
    "2: n1, n2"
)
ADDS = (
    "with --no-local-node all nodes are started on these hosts; --nnodes 3 adds this machine "
    "to them; an entry that is this machine under another name can be written as localhost"
)
NO_FIT, THREE = "does not match the hosts, which are 3: n0, n1, n2", "give --nnodes 3, or remove it"


@pytest.mark.parametrize(
    ("names", "nnodes", "more", "message", "hint"),
    [
        *(("n1,n2", nnodes, {}, UNNAMED, ADDS) for nnodes in (None, "2", "4")),
        ("n0,n1,n2", "2", {}, f"--nnodes 2 {NO_FIT}", THREE),
        ("n0,n1,n2", "2:4", {}, f"--nnodes 2:4 {NO_FIT}", THREE),
        ("n0,n1,n2", "4", {"local_node": False}, f"--nnodes 4 {NO_FIT}", THREE),
        ("n0,n1,n2", "3", {"spares": 1}, f"--nnodes 3 with --spares 1 {NO_FIT}", "give --nnodes 2"),
        ("n0", None, {"spares": 1}, "--spares 1 leaves none of the hosts: 1: n0", ""),
        (
            *("n0,n1", None, {"spares": 1, "standby": 1}),
            *("--spares 1 and --standby 1 leaves none of the hosts: 2: n0, n1", ""),
        ),
        ("n0,n1,10.0.0.5", None, {}, "n0 and 10.0.0.5 are both this machine", ""),
    ],
)
def test_hosts_that_do_not_fit_are_refused(
    names: str, nnodes: str | None, more: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        placed(names, nnodes, **more)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)


def test_slots_are_processes_of_all_hosts_or_of_none() -> None:
    for names, expected in (("n1,n2", None), ("n1:8,n2:8", "8"), ("n1:8,n2:4,n3:8", "8,4,8")):
        found = processes_of(read_hostlist([names]))
        assert (found and str(found)) == expected
    with pytest.raises(UsageError) as caught:
        processes_of(read_hostlist(["n1:8,n2"]))
    assert caught.value.message == "n2 has no number of slots, but other hosts have one"


# ---- from the options ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "nnodes", "processes", "starter"),
    [
        ({"hostlist": ["localhost:8,n1:4"]}, "2", "8,4", "ssh"),
        ({"hostlist": ["localhost,n1,n2"], "spares": 1}, "2", None, "ssh"),
        (
            {"hostlist": ["localhost:8,n1"], "nproc_per_node": "1", "nnodes": "1:2"},
            *("1:2", "1", "ssh"),
        ),
        ({"hostlist": ["localhost,n1"], "scheduler": "manual"}, "2", None, "manual"),
        ({"hostlist": ["localhost,n1"], "scheduler_profile": "o.toml"}, "2", None, "o.toml"),
        ({"nnodes": "2"}, "2", None, "local"),
    ],
)
def test_options_say_more_than_the_hosts_do(
    given: dict[str, Any], nnodes: str, processes: str | None, starter: str
) -> None:
    settings = LaunchSettings.model_validate(given)
    found, hosts, more, _ = on_named_hosts(settings)
    assert more == ()
    assert (found.nnodes, found.nproc_per_node, Path(found.starter).name) == (
        nnodes,
        processes or settings.nproc_per_node,
        starter,
    )
    assert len(hosts) == len(given.get("hostlist", [""])[0].split(",")) * ("hostlist" in given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hostlist": ["n1"], "hostfile": "f"}, "--hostlist and --hostfile name the hosts twice"),
        (
            {"hostlist": ["localhost,n1"], "scheduler": "local"},
            "--scheduler local starts all nodes on this machine, but hosts are given",
        ),
        ({"hostfile": "/nonexistent/hosts"}, "the hostfile /nonexistent/hosts cannot be read: "),
    ],
)
def test_hosts_that_cannot_be_meant_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        on_named_hosts(LaunchSettings.model_validate(given))
    assert caught.value.message.startswith(message)


def test_the_hosts_slots_count_unless_processes_are_asked_for() -> None:
    hosts = ("--hostlist", "localhost:8,n1:8", "--rdzv-id", "llama", "--dry-run=full")
    for env, count in (({}, "8"), ({"GPUS_PER_NODE": "4"}, "4")):
        done = rdzv("launch", *hosts, "--", "train.py", env=env)
        assert "ssh://n1" in done.stdout
        assert f"--nnodes 2 --nproc-per-node {count} " in done.stdout
        told = "GPUS_PER_NODE 4 counts, and not the slots of --hostlist (localhost: 8, n1: 8)"
        assert (told in done.stderr) == bool(env)


@pytest.mark.parametrize(
    ("names", "given", "notes"),
    [
        ("n1:8,n2:8", None, []),
        ("n1:8,n2:8", "8", []),
        ("n1:8,n2:4", "8,4", []),
        ("n1,n2", "8", []),
        ("n1:8,n2:4", "8", ["--nproc-per-node 8 counts, and not the slots of LIST (n2: 4)"]),
        ("n1:8,n2:8", "4", ["--nproc-per-node 4 counts, and not the slots of LIST (n1: 8, n2: 8)"]),
        (
            "n1:8,n2:8",
            "gpu",
            ["--nproc-per-node gpu counts, and not the slots of LIST (n1: 8, n2: 8)"],
        ),
        ("n1,n1,n2", None, ["LIST names n1 2 times: one node with 2 processes"]),
        ("n2,n2,n1,n1,n1", None, ["LIST names n2 2 times: one node with 2 processes"]),
        (
            "n2:22,n1:22",
            None,
            ["LIST gives n2 22 processes; a port of its sshd is written 'n2 port=22'"],
        ),
        (
            "n1:8,n2:2222",
            None,
            ["LIST gives n2 2222 processes; a port of its sshd is written 'n2 port=2222'"],
        ),
    ],
)
def test_numbers_that_may_surprise_are_told(
    names: str, given: str | None, notes: list[str]
) -> None:
    counts = None if given is None else Processes.parse(given)
    assert notes_of(read_hostlist([names]), "LIST", counts) == notes


@pytest.mark.parametrize(
    ("words", "env", "source"),
    [
        ("--nnodes 1 --nproc-per-node 4096", {}, "--nproc-per-node"),
        ("--nnodes 1", {"GPUS_PER_NODE": "4096"}, "GPUS_PER_NODE"),
        ("--hostlist localhost:4096", {}, "--hostlist"),
    ],
)
def test_a_number_that_this_machine_never_takes_is_refused_with_its_source(
    words: str, env: dict[str, str], source: str
) -> None:
    done = rdzv("launch", *words.split(), "--", "train.py", env=env)
    assert done.exit_code == ExitCode.USAGE
    assert f"4096 processes are asked for on this node ({source}), which has" in done.stderr


def test_every_slot_has_its_host_and_its_variable_cannot_be_set_otherwise() -> None:
    def plan(**settings: Any) -> Plan:
        site = Site(Spec("worker.sh", ""), hosts=("n0", "ada@n1", "[fd00::7]:22"))
        return plan_of("train.py", site=site, nnodes="3", **settings)

    hosts = [plan().submission(slot, 1).variables["HOST"] for slot in range(3)]
    assert hosts == ["n0", "ada@n1", "[fd00::7]:22"]
    with pytest.raises(UsageError, match="--set HOST: rdzv sets this variable"):
        plan(set=["HOST=n9"])
