"""What features note of a run, and have a person shown: bounded."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from rendezvous.run import events
from rendezvous.run.features import Remark, data_of
from rendezvous.run.views import reason_and_topic, run_status
from rendezvous.wire.run import Phase, RunSpec, RunStatus, Suspect
from tests.support.driver import Drive, in_phase, make_spec

FOUND = Remark(
    finding="it has rained for 2 min",
    lasting="it rains",
    next_step="take an umbrella",
    suspect=Suspect(slot=0, rank=0),
)
SILENT = Remark(silence="no sun for 2 min", lasting="no sun for a while")


class Weather(BaseModel):
    """What a feature notes."""

    sky: str


@pytest.mark.parametrize("data", [{"words": "x" * 6_200}, ["\U0001f525" * 1_600]])
def test_a_feature_notes_no_more_than_its_share(data: Any) -> None:
    with pytest.raises(ValidationError, match="at most 6144 bytes of JSON"):
        events.Noted(feature="weather", words="something was found", data=data)


def test_what_features_say_of_a_run_is_bounded() -> None:
    many = {f"feature{number}": "x" * 1_000 for number in range(9)}
    with pytest.raises(ValidationError, match="at most 8192 bytes of JSON"):
        make_spec(2, features=many)
    with pytest.raises(ValidationError, match="at most 16 items"):
        make_spec(2, features={f"feature{number}": 1 for number in range(17)})
    with pytest.raises(ValidationError, match="pattern"):
        make_spec(2, features={"Hang": 1})


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_what_json_cannot_say_is_no_word_of_a_feature(number: str) -> None:
    spec = make_spec(2, features={"hang": {"ranks": [1, 0.5]}}).model_dump_json()
    assert RunSpec.model_validate_json(spec).model_dump_json() == spec
    with pytest.raises(ValidationError, match="no NaN and no infinity"):
        RunSpec.model_validate_json(spec.replace("0.5", number))


def test_what_another_version_has_noted_is_nothing_that_is_known() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    assert data_of(drive.run, "weather", Weather) is None
    both: list[tuple[JsonValue, Weather | None]] = [
        ({"sky": "blue"}, Weather(sky="blue")),
        ({"clouds": 3}, None),
    ]
    for data, known in both:
        drive.apply(events.Noted(feature="weather", words="it was looked at", data=data))
        assert data_of(drive.run, "weather", Weather) == known
        assert drive.status().features == {"weather": data}
    drive.apply(events.Noted(feature="weather", words="it is over"))
    assert drive.run.notes == {}


# --- what a person is shown -----------------------------------------------------------------------


def shown(drive: Drive, remark: Remark | None) -> RunStatus:
    return run_status(drive.run, drive.now, drive.leases, remark=remark)


def test_what_was_found_is_in_the_reason_and_has_its_next_step_beside_it() -> None:
    status = shown(in_phase(Phase.RUNNING, 2), FOUND)
    assert status.reason == "running on 2 nodes; it has rained for 2 min"
    assert status.finding == "it has rained for 2 min; try: take an umbrella"
    assert (status.suspect, status.silence) == (Suspect(slot=0, rank=0), "")


def test_a_silence_that_nobody_has_judged_is_no_finding() -> None:
    status = shown(in_phase(Phase.RUNNING, 2), SILENT)
    assert status.reason == "running on 2 nodes; no sun for 2 min"
    assert (status.finding, status.silence, status.suspect) == ("", "no sun for 2 min", None)


def test_where_nothing_was_found_nothing_is_shown_of_it() -> None:
    status = shown(in_phase(Phase.RUNNING, 2), None)
    assert (status.reason, status.finding) == ("running on 2 nodes", "")


def test_the_topic_changes_with_what_happens_and_not_with_the_times_in_it() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    topics = [
        reason_and_topic(drive.run, drive.now, "", remark)[1]
        for remark in (
            *(FOUND, FOUND._replace(finding="it has rained for 3 min")),
            *(SILENT, SILENT._replace(silence="no sun for 3 min")),
            None,
        )
    ]
    assert topics[0] == topics[1]
    assert topics[2] == topics[3]
    assert len({*topics}) == 3


def test_once_the_programs_are_being_stopped_there_is_no_remark() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(1, 3)
    assert "rain" not in shown(drive, FOUND).reason
