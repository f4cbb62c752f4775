"""What a file of options cannot hold, and what to write."""

from __future__ import annotations

import pytest

from launcher.run_file.values import Kind, for_table, for_unknown, for_value

OPTIONS = {
    name: name for name in ("nnodes", "interface", "network", "local_node", "rdzv_id", "set")
}
OPTIONS |= {"NUM_NODES": "nnodes", "RDZV_NNODES": "nnodes"}


@pytest.mark.parametrize(
    ("key", "value", "line", "where"),
    [
        ("launch", {"nnodes": 2}, "nnodes = 2", "launch"),
        ("launch", {"name": "x", "rdzv-id": "a"}, 'rdzv_id = "a"', "launch"),
        ("rdzv", {"launch": {"local_node": False}}, "local_node = false", "rdzv.launch"),
        ("network", {"interface": ["eth0"]}, 'interface = ["eth0"]', "network"),
        ("launch", [{"NUM_NODES": 4}], "nnodes = 4", "launch"),
    ],
)
def test_a_table_is_told_which_line_to_write(
    key: str, value: object, line: str, where: str
) -> None:
    assert for_table(key, value, OPTIONS) == (
        f"no option is in a table: write '{line}' at the top, without [{where}]"
    )


@pytest.mark.parametrize("value", [{"IMAGE": "x"}, {}, [], "x", 3, {"a": {"b": {}}}])
def test_what_holds_no_option_is_no_table_of_options(value: object) -> None:
    assert for_table("set", value, OPTIONS) == ""


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("NUM_NODES", 2, "write 'nnodes', which is the name of that option"),
        ("no-local-node", True, "write 'local_node = false'"),
        ("no_local_node", False, "write 'local_node = true'"),
        ("no_nonsense", True, "--help-all lists the options"),
        ("--nodes", 2, "did you mean 'nnodes'?"),
        ("env", {"A": "b"}, "--help-all lists the options"),
    ],
)
def test_an_unknown_key_gets_the_nearest_one(key: str, value: object, advice: str) -> None:
    assert for_unknown(key, value, OPTIONS) == advice


@pytest.mark.parametrize(
    ("value", "kind", "metavar", "words"),
    [
        ({"A": "b"}, "list", "NAME=VALUE", 'a table: write one line, such as k = ["NAME=VALUE"]'),
        ({}, "text", None, 'a table: write one line, such as k = "VALUE"'),
        ([{}], "truth", None, "a table: write one line, such as k = true"),
        ("a,b", "list", "A", "'a,b': write a list, ['a,b']"),
        ([2, 1], "text", "N", 'a list: write one text, "2,1"'),
        ([], "text", "N", "[]"),
        ("yes", "truth", None, "'yes': write true"),
        (0, "truth", None, "0: write false"),
        ("maybe", "truth", None, "'maybe'"),
        (True, "text", None, "True"),
    ],
)
def test_a_value_of_another_kind_is_told_what_to_write(
    value: object, kind: Kind, metavar: str | None, words: str
) -> None:
    assert for_value("k", value, metavar, kind) == f"cannot be {words}"
