"""What is hidden in a saved page, and that nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.ui.save import without_secrets

WORD = "hunter2hunter2"
H = "(hidden)"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"train.py --api-key {WORD} --lr 0.1", f"train.py --api-key {H} --lr 0.1"),
        (f"train.py --token={WORD}", f"train.py --token={H}"),
        (f"train.py -token {WORD}", f"train.py -token {H}"),
        (f"train.py --wandb_api_key\t{WORD} x", f"train.py --wandb_api_key\t{H} x"),
        (f"train.py --password '{WORD} and more' x", f"train.py --password {H} x"),
        (f'train.py --password "{WORD} and more" x', f"train.py --password {H} x"),
        (f"train.py --password '{WORD}'\"'\"'s more' x", f"train.py --password {H} x"),
        (f"train.py '--password={WORD} and more' x", f"train.py '--password={H}' x"),
        (f"train.py '--password=it'\"'\"'s {WORD}' x", f"train.py '--password={H}' x"),
        (f"train.py --secret -{WORD} x", f"train.py --secret {H} x"),
        (f"train.py '--env=API_KEY={WORD} and more' x", f"train.py '--env=API_KEY={H}' x"),
        (f"WANDB_API_KEY={WORD} python", f"WANDB_API_KEY={H} python"),
        (f"WANDB_API_KEY='{WORD} {WORD}' python", f"WANDB_API_KEY={H} python"),
        (f'PASSWORD="{WORD} {WORD}" python', f"PASSWORD={H} python"),
        (f"s3://me:{WORD}@host/x", f"s3://me:{H}@host/x"),
        ("key is hf_AbCdEfGhIjKl", f"key is {H}"),
        ("RDZV_JOIN is rdzv1-abc_DEF-9", f"RDZV_JOIN is {H}"),
        ("rdzvreg1-abc rdzvtok1-def", f"{H} {H}"),
    ],
)
def test_a_secret_is_hidden_and_what_is_around_it_stays(text: str, left: str) -> None:
    assert without_secrets(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "train.py --tokens-per-batch 4096 --monkey 7 --lr 1e-4 data/*.parquet",
        "keyboard interrupt at step 12: loss = 0.25, rank 3",
        "http://127.0.0.1:29610/ and user@host and a:b@c",
        "--token",
        "--lr 'a b' --name \"x y\"",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_a_variable_is_hidden_by_its_name_wherever_it_stands() -> None:
    found = without_secrets(
        {
            "variables": [
                {"name": "HF_TOKEN", "value": WORD, "reason": "yours"},
                {"name": "MASTER_PORT", "value": "29500", "reason": "free"},
                {"name": "EMPTY_TOKEN", "value": "", "reason": ""},
            ],
            "head": {"command": f"x --token {WORD}", "n": 7, "result": None, "ok": True},
            "logs": [{"lines": [f"PASSWORD={WORD}", "step 1"]}],
        }
    )
    assert found == {
        "variables": [
            {"name": "HF_TOKEN", "value": H, "reason": "yours"},
            {"name": "MASTER_PORT", "value": "29500", "reason": "free"},
            {"name": "EMPTY_TOKEN", "value": "", "reason": ""},
        ],
        "head": {"command": f"x --token {H}", "n": 7, "result": None, "ok": True},
        "logs": [{"lines": [f"PASSWORD={H}", "step 1"]}],
    }


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab -.")
SHAPES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab", max_size=3), inner),
    max_leaves=12,
)


@given(SHAPES)
def test_what_holds_no_secret_is_the_same(value: Any) -> None:
    assert without_secrets(value) == value


@given(st.text("ab -.\"'"), st.text("ab -.\"'"))
def test_an_option_is_hidden_in_whatever_text(before: str, after: str) -> None:
    assert WORD not in without_secrets(f"{before} --api-key {WORD} {after}")
