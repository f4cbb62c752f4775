"""Values as they travel."""

from __future__ import annotations

import math

from features.metrics import wire


def test_numbers_that_are_none_travel_and_come_back() -> None:
    values: dict[str, object] = {
        "loss": math.nan,
        "most": math.inf,
        "least": -math.inf,
        "lr": 0.5,
        "steps": 7,
    }
    sent = wire.encoded(values)
    assert sent == {
        "loss/not_finite": 1.0,
        "most/not_finite": 2.0,
        "least/not_finite": -2.0,
        "lr": 0.5,
        "steps": 7,
    }
    back = wire.decoded({name: float(str(value)) for name, value in sent.items()})
    assert math.isnan(back.pop("loss"))
    assert back == {"most": math.inf, "least": -math.inf, "lr": 0.5, "steps": 7.0}
    assert wire.decoded({"loss/not_finite": 3.0}) == {"loss/not_finite": 3.0}
