"""Variables that a person gives to every node: which counts, what is a secret, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.options import with_sources
from launcher.plan.env_files import read_env_files
from launcher.plan.given_variables import (
    GivenVariables,
    given_variables,
    read_env_file,
    shown_secrets,
)
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError
from worker.contracts.variables import Variable

ENVIRON = {
    "HF_TOKEN": "hush-1",
    "LR": "0.1",
    "NCCL_DEBUG": "INFO",
    "ODD": "hush-2",
    "EMPTY": "",
    "BAD": "hush-\udcff",
}


def given(
    *env: str, files: tuple[str, ...] = (), symmetric: bool = False, **more: Any
) -> GivenVariables:
    read = [(f"f{number}.env", text.encode()) for number, text in enumerate(files)]
    settings = LaunchSettings(env=list(env), **more)
    return given_variables(settings, ENVIRON, read, symmetric=symmetric)


def test_nothing_is_given_but_what_is_always_passed() -> None:
    found = given()
    assert (found.passed, found.secrets, found.explained()) == ({"NCCL_DEBUG": "INFO"}, {}, [])


@pytest.mark.parametrize(
    ("env", "more", "value"),
    [
        ((), {"pass_env": ["LR"]}, "0.1"),
        ((), {"pass_env": ["LR"], "files": ("LR=f",)}, "f"),
        ((), {"files": ("LR=f\nLR=g",)}, "g"),
        ((), {"files": ("LR=f", "LR=g")}, "g"),
        (("LR=e",), {"pass_env": ["LR"], "files": ("LR=f",)}, "e"),
        (("LR=e", "LR=d=c"), {}, "d=c"),
        (("LR=e", "LR"), {}, "0.1"),
        (("LR=",), {}, ""),
        (("NCCL_DEBUG=WARN", "LR=a b\n'\"$"), {}, "a b\n'\"$"),
    ],
)
def test_the_option_that_is_nearer_to_the_person_counts_and_the_later_one(
    env: tuple[str, ...], more: dict[str, Any], value: str
) -> None:
    assert given(*env, **more).passed["LR"] == value


def test_a_variable_of_nccl_is_the_persons_where_it_is_given() -> None:
    assert given("NCCL_DEBUG=WARN").passed == {"NCCL_DEBUG": "WARN"}


def test_the_slot_is_filled_in_for_env_alone() -> None:
    found = given("A={slot}/{slot}", "B={{slot}} { slot} {x}", files=("D={slot}",))
    expected = {"A": "3/3", "B": "{3} { slot} {x}", "D": "{slot}", "NCCL_DEBUG": "INFO"}
    assert found.of_slot(3) == expected
    assert given("D={slot}", "D=x", files=("D={slot}",)).by_slot == frozenset()


@pytest.mark.parametrize(
    ("env", "more", "secrets"),
    [
        (("HF_TOKEN",), {}, {"HF_TOKEN": "hush-1"}),
        (("HF_TOKEN=hush-5",), {}, {"HF_TOKEN": "hush-5"}),
        ((), {"pass_env": ["HF_TOKEN"]}, {"HF_TOKEN": "hush-1"}),
        ((), {"files": ("HF_TOKEN=y\nHF_TOKEN",)}, {"HF_TOKEN": "hush-1"}),
        ((), {"secret_env": ["ODD"]}, {"ODD": "hush-2"}),
        ((), {"secret_env": ["BAD"]}, {"BAD": "hush-\udcff"}),
        (("ODD=hush-4",), {"secret_env": ["ODD"]}, {"ODD": "hush-4"}),
        ((), {"secret_env": ["ODD"], "files": ("ODD=hush-3",)}, {"ODD": "hush-3"}),
        (("API_KEY=k-{slot}",), {}, {"API_KEY": "k-{slot}"}),
        ((), {"pass_env": ["ODD"], "secret_env": ["ODD"]}, {"ODD": "hush-2"}),
    ],
)
def test_a_secret_is_one_by_its_name_or_because_a_person_says_so(
    env: tuple[str, ...], more: dict[str, Any], secrets: dict[str, str]
) -> None:
    found = given(*env, **more)
    assert found.secrets == secrets
    assert found.passed == {"NCCL_DEBUG": "INFO"}
    assert all(value not in repr(found) for value in secrets.values())
    assert [one.value for one in found.explained()] == ["(hidden)"]


def test_what_is_given_is_shown_with_its_reason_and_what_looks_like_a_secret_is_hidden() -> None:
    found = given("URL=pg://u:hush@h", "HF_TOKEN", files=("A=1",), pass_env=["LR"])
    sealed = "; a secret, which travels sealed"
    assert found.explained() == [
        Variable("A", "1", "set by --env-file f0.env"),
        Variable("URL", "pg://u:(hidden)@h", "set by --env"),
        Variable("HF_TOKEN", "(hidden)", f"set by --env{sealed}"),
    ]
    assert found.without(["A", "URL"]).explained() == [found.explained()[2]]


def test_a_person_is_told_of_secrets_that_stand_on_the_command_line() -> None:
    settings = LaunchSettings(env=["HF_TOKEN=hush", "LR=1", "API_KEY=hush", "ODD"])
    (told,) = shown_secrets(given_variables(settings, ENVIRON), settings)
    assert told.startswith("API_KEY, HF_TOKEN: their values are on this command line")
    assert "hush" not in told
    one = LaunchSettings(env=["HF_TOKEN=hush"])
    assert "its value is" in shown_secrets(given_variables(one, ENVIRON), one)[0]
    none = LaunchSettings(env=["HF_TOKEN", "LR=1"])
    assert shown_secrets(given_variables(none, ENVIRON), none) == []
    both = with_sources(LaunchSettings(env=["A_KEY=of a file", "LR=1"]), {"env.A_KEY": "[env]:"})
    assert shown_secrets(given_variables(both, ENVIRON), both) == []


NO_NAME = "does not begin with the name of a variable"
OWN = "rdzv itself sets or reads this variable on each node"


@pytest.mark.parametrize(
    ("env", "more", "message", "hint"),
    [
        (("HF_TOKENS",), {}, "--env HF_TOKENS: the variable is not set here", "did you mean HF_T"),
        ((), {"secret_env": ["HF_TOKENS"]}, "--secret-env HF_TOKENS: the var", "did you mean HF_T"),
        (("ZZZZ",), {}, "--env ZZZZ: the variable is not set here", "set it, or remove"),
        (("1A=hush",), {}, f"--env {NO_NAME}", "a name has letters"),
        (("=hush",), {}, f"--env {NO_NAME}", "a name has letters"),
        (("A B=hush",), {}, f"--env {NO_NAME}", "a name has letters"),
        ((f"{'A' * 254}=hush",), {}, f"--env {NO_NAME}", "a name has letters"),
        ((), {"secret_env": ["A=hush"]}, f"--secret-env {NO_NAME}", "a name has letters"),
        *(
            ((f"{name}=hush",), {}, f"--env {name}: {OWN}", "choose another name")
            for name in (
                "RDZV_JOIN",
                "RDZV_LEASE",
                "RANK",
                "WORLD_SIZE",
                "MASTER_ADDR",
                "NUM_NODES",
            )
        ),
        ((), {"secret_env": ["RDZV_TOKEN"]}, f"--secret-env RDZV_TOKEN: {OWN}", "choose"),
        (("A=hush\0",), {}, "--env: A has a NUL in it", ""),
        ((), {"files": ("A=hush\0",)}, "--env-file f0.env: A has a NUL in it", ""),
        ((), {"files": ("\n A B=hush",)}, f"--env-file f0.env, line 2 {NO_NAME}", "a name"),
        ((), {"files": ("=hush",)}, f"--env-file f0.env, line 1 {NO_NAME}", "a name has"),
        ((), {"files": ("RANK=hush",)}, f"--env-file f0.env, line 1: RANK: {OWN}", "choose"),
        (("A_KEY=hush" + "x" * 70_000,), {}, "the secret variables are ", "give a large one in a"),
        (tuple(f"A{n}_KEY=hush" for n in range(257)), {}, "257 secret variables are given", ""),
    ],
)
def test_what_cannot_be_given_is_refused_and_no_value_is_shown(
    env: tuple[str, ...], more: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        given(*env, **more)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)
    assert "hush" not in f"{caught.value.message} {caught.value.hint}"


def test_a_symmetric_start_refuses_secrets_and_passes_on_what_it_always_has() -> None:
    for more in ({"files": ("HF_TOKEN",)}, {"secret_env": ["ODD"]}):
        with pytest.raises(UsageError, match="a secret in a symmetric start") as caught:
            given(symmetric=True, **more)
        assert "the scheduler's own secrets (Kubernetes: secretKeyRef" in caught.value.hint
    with pytest.raises(UsageError, match=r"A_KEY, HF_TOKEN: secrets in a symmetric start"):
        given("HF_TOKEN", "A_KEY=1", symmetric=True)
    found = given("LR={slot}", symmetric=True, pass_env=["HF_TOKEN"])
    assert found.of_slot(2) == {"HF_TOKEN": "hush-1", "LR": "2", "NCCL_DEBUG": "INFO"}
    assert found.secrets == {}


def test_rdzvs_own_secrets_are_sealed_for_no_program() -> None:
    settings = LaunchSettings(pass_env=["RDZV_TOKEN"])
    assert given_variables(settings, {"RDZV_TOKEN": "t"}).secrets == {}


# ---- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", {}),
        (b"A=1", {"A": "1"}),
        (b"\xef\xbb\xbfA=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        (b"# A=1\n  # B=2\n\n \t\nC=3", {"C": "3"}),
        (b"  \tA=1", {"A": "1"}),
        (b"A= 1 \nB='x y'\nC=\"z\"\nD=$HOME # no comment\nE=", {
            "A": " 1 ", "B": "'x y'", "C": '"z"', "D": "$HOME # no comment", "E": "",
        }),
        (b"A=b=c\\n", {"A": "b=c\\n"}),
        (b"LR\nMISSING\nEMPTY \n", {"LR": "0.1", "EMPTY": ""}),
        ("A=ü\x85\u2028x\x0cy".encode(), {"A": "ü\x85\u2028x\x0cy"}),
    ],
)  # fmt: skip
def test_a_file_is_read_as_docker_reads_it(content: bytes, found: dict[str, str]) -> None:
    assert read_env_file("f", content, ENVIRON) == found


def test_a_file_that_is_not_utf_8_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match="--env-file f, line 2: it is not UTF-8"):
        read_env_file("f", b"A=1\nB=\xff", {})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.env"
    file.write_bytes(b"A=1\n")
    assert read_env_files([file]) == [(str(file), b"A=1\n")]
    with pytest.raises(UsageError, match=r"--env-file .*/b\.env cannot be read: No such file"):
        read_env_files([tmp_path / "b.env"])


def test_a_run_file_has_names_alone_of_secrets_and_passes_on_what_it_cannot_hold() -> None:
    urls = ("U=postgres://u:hush@h/x", "T={slot}", "BAD")
    found = given(*urls, "HF_TOKEN", "LR", files=("Z={slot}",), pass_env=["ODD"])
    env, secrets, again = found.for_file()
    assert env == {"LR": "0.1", "NCCL_DEBUG": "INFO", "ODD": "hush-2", "T": "{slot}"}
    assert (sorted(secrets), sorted(again)) == (["HF_TOKEN", "U"], ["BAD", "Z"])


def test_several_secrets_that_are_not_set_here_are_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        given(secret_env=["A_KEY", "LR", "B_KEY"])
    assert caught.value.message == "--secret-env A_KEY, B_KEY: the variables are not set here"
    settings = with_sources(LaunchSettings(env=["A_KEY"]), {"env.A_KEY": "[env] of run.toml:"})
    with pytest.raises(UsageError) as caught:
        given_variables(settings, {"A_KEYS": "x"})
    assert caught.value.message == "[env] of run.toml: A_KEY: the variable is not set here"
    assert caught.value.hint == "set it where you launch"
