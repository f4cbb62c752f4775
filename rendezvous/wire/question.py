"""What readers ask the nodes of a run, and how nodes answer. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rendezvous.wire.types import ShortWords, SlotIndex, Wire, Words

QuestionNumber = Annotated[int, Field(ge=1, lt=1 << 53)]


class Question(Wire):
    """A question that is open: each node whose program runs answers it once."""

    number: QuestionNumber = Field(description="A different one for each question of a run.")
    topic: ShortWords


class QuestionCall(Wire):
    """The number of a question; the same for all who ask while one is open."""

    number: QuestionNumber


class Answer(Wire):
    """The answer of one node: the base of what each topic adds."""

    number: QuestionNumber
    epoch: Annotated[int, Field(ge=0)]
    words: Words = Field("", description="Why nothing could be seen; empty: it could.")


class NodeAnswer(Wire):
    """A node that was asked, and its answer."""

    slot: SlotIndex
    node: int | None = None
    hostname: ShortWords = ""
    report: Any = Field(None, description="None: it has not answered yet.")


class Answers(Wire):
    """What has been answered to a question until now."""

    number: int = Field(description="0: there was none.")
    epoch: int = 0
    age: float = Field(0.0, description="Seconds since it was asked.")
    over: bool = Field(False, description="Every node has answered, or its time has passed.")
    nodes: list[Any] = []
