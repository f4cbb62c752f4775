"""The last words of a run's ranks: from the registry into the run's folder, and where they go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.state import last_words_files
from launcher.state.last_words import EPOCHS_KEPT, LastWordsFolder, RankWords
from launcher.state.last_words_files import FETCH_SECONDS, LastWordsFiles
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import NotFound, RdzvError, Unavailable
from rendezvous.wire.last_words import KeptText, RunLastWords
from tests.launcher.world import virtual


class Registry:
    """A registry that tells page by page, or is gone after so many."""

    def __init__(self) -> None:
        self.session, self.left_out, self.asked = "a", 0, list[int]()
        self.texts: list[KeptText] = []
        self.page = 2
        self.fails: RdzvError | None = None
        self.hangs_after: int | None = None

    def keeps(
        self,
        rank: int | None,
        text: str,
        *,
        epoch: int = 1,
        node: int = 0,
        whole: bool = False,
        part: int = 0,
    ) -> None:
        number = len(self.texts) + 1
        place: dict[str, Any] = {"number": number, "epoch": epoch, "slot": node, "node": node}
        self.texts.append(KeptText(rank=rank, text=text, whole=whole, part=part, **place))

    async def request(self, method: str, path: str, *, params: dict[str, int]) -> bytes:
        assert (method, path) == ("GET", "/v1/runs/r/words")
        self.asked.append(params["after"])
        if self.fails is not None:
            raise self.fails
        if self.hangs_after is not None and len(self.asked) > self.hangs_after:
            await asyncio.sleep(60)
        newer = [text for text in self.texts if text.number > params["after"]][: self.page]
        told = RunLastWords(
            session=self.session, newest=len(self.texts), left_out=self.left_out, texts=newer
        )
        return told.model_dump_json().encode()


def keeper(registry: Registry, folder: Path, said: list[str] | None = None) -> LastWordsFiles:
    client = cast(RegistryClient, registry)
    said = [] if said is None else said
    return LastWordsFiles(client, "r", LastWordsFolder(folder), said.append)


def kept(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.txt")}


@virtual
async def fetched(registry: Registry, folder: Path, said: list[str]) -> None:
    await keeper(registry, folder, said).fetch()


# --- what is written ------------------------------------------------------------------------------


async def test_each_rank_has_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    registry, folder = Registry(), tmp_path / "last-words"
    registry.keeps(0, "one\ntwo")
    registry.keeps(None, "torchrun", node=1)
    registry.keeps(5, "boom", epoch=2, node=1)
    await keeper(registry, folder).fetch()
    assert kept(folder) == {
        "epoch-1/rank-0.txt": "one\ntwo\n",
        "epoch-1/node-1.txt": "torchrun\n",
        "epoch-2/rank-5.txt": "boom\n",
    }
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (folder, folder / "epoch-1")} == {0o700}
    assert registry.asked == [0, 2]


async def test_the_parts_of_a_whole_text_are_put_together_and_its_last_lines_forgotten(
    tmp_path: Path,
) -> None:
    registry = Registry()
    files = keeper(registry, tmp_path)
    registry.keeps(5, "end")
    registry.keeps(5, "second", whole=True, part=1)
    await files.fetch()
    registry.keeps(5, "first", whole=True)
    registry.keeps(5, "end")
    await files.fetch()
    assert kept(tmp_path) == {"epoch-1/rank-5.txt": "first\nsecond\n"}


async def test_the_first_cause_is_written_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[tuple[int, int | None]]()

    def write(self: LastWordsFolder, words: list[RankWords]) -> None:
        written.extend((one.epoch, one.rank) for one in words)

    monkeypatch.setattr(LastWordsFolder, "write", write)
    registry = Registry()
    registry.keeps(0, "a")
    registry.keeps(0, "a", epoch=2)
    registry.keeps(5, "b", node=1, whole=True, epoch=2)
    await keeper(registry, tmp_path).fetch()
    assert written == [(2, 5), (2, 0), (1, 0)]


async def test_only_what_is_new_is_asked_for_until_the_registry_begins_anew(
    tmp_path: Path,
) -> None:
    registry = Registry()
    files = keeper(registry, tmp_path)
    registry.keeps(0, "a")
    await files.fetch()
    await files.fetch()
    assert registry.asked == [0, 1]
    registry.session, registry.texts = "b", []
    registry.keeps(1, "b")
    await files.fetch()
    assert registry.asked == [0, 1, 1, 0]
    assert set(kept(tmp_path)) == {"epoch-1/rank-0.txt", "epoch-1/rank-1.txt"}


async def test_of_many_epochs_the_newest_are_kept(tmp_path: Path) -> None:
    folder = LastWordsFolder(tmp_path)
    for epoch in range(1, EPOCHS_KEPT + 3):
        folder.write([RankWords(epoch, 0, 0, "a")])
    (tmp_path / "epoch-mine").mkdir()
    assert folder.epochs() == list(range(3, EPOCHS_KEPT + 3))
    assert list(folder.files(9)) == [("rank", 0)]
    assert folder.files(1) == {}


async def test_of_three_epochs_the_oldest_is_not_kept_in_memory_and_may_not_come_back(
    tmp_path: Path,
) -> None:
    """What comes of it all the same is written by itself."""
    registry = Registry()
    files = keeper(registry, tmp_path)
    for epoch in (2, 3, 4):
        for part in (0, 1):
            registry.keeps(7, f"{epoch}{part}", epoch=epoch, whole=True, part=part)
        await files.fetch()
    assert sorted(epoch for epoch, _, _ in files._texts) == [3, 4]
    registry.keeps(7, "21 again", epoch=2, whole=True, part=1)
    registry.keeps(7, "31 again", epoch=3, whole=True, part=1)
    await files.fetch()
    await files.fetch()
    assert kept(tmp_path) == {
        "epoch-2/rank-7.txt": "21 again\n",
        "epoch-3/rank-7.txt": "30\n31 again\n",
        "epoch-4/rank-7.txt": "40\n41\n",
    }


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NotFound("no such path"), Unavailable("nobody answers")])
async def test_a_registry_without_them_leaves_no_folder(error: RdzvError, tmp_path: Path) -> None:
    registry, said = Registry(), list[str]()
    registry.fails = error
    await keeper(registry, tmp_path / "last-words", said).fetch()
    assert (list(tmp_path.iterdir()), said) == ([], [])


def test_of_a_folder_that_cannot_be_read_nothing_is_known(tmp_path: Path) -> None:
    folder = LastWordsFolder(tmp_path / ("x" * 300))  # the kernel refuses to look for it
    assert (folder.epochs(), folder.files(1)) == ([], {})


def test_of_one_that_falls_silent_what_has_come_is_kept(tmp_path: Path) -> None:
    registry = Registry()
    for rank in range(5):
        registry.keeps(rank, "a")
    registry.hangs_after = 1
    fetched(registry, tmp_path, [])
    assert set(kept(tmp_path)) == {"epoch-1/rank-0.txt", "epoch-1/rank-1.txt"}
    assert FETCH_SECONDS <= 5.0


async def test_what_there_was_no_room_for_is_said_once(tmp_path: Path) -> None:
    registry, said = Registry(), list[str]()
    files = keeper(registry, tmp_path, said)
    registry.left_out = 7
    await files.fetch()
    registry.left_out = 9
    await files.fetch()
    (words,) = said
    assert words.startswith("the nodes print more than the registry keeps: ")


async def test_a_disk_that_is_slow_has_the_first_ones_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_words_files, "WRITE_SECONDS", -1.0)
    registry, said = Registry(), list[str]()
    registry.page = 100
    for rank in range(70):
        registry.keeps(rank, "a")
    await keeper(registry, tmp_path, said).fetch()
    assert len(kept(tmp_path)) == 64
    assert said == [
        f"{tmp_path} takes too long to write: the last output of 6 ranks is left out",
    ]


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    registry, said, folder = Registry(), list[str](), tmp_path / "last-words"
    folder.write_text("mine")
    registry.keeps(0, "a")
    await keeper(registry, folder, said).fetch()
    assert said == [f"{folder} cannot be written: File exists"]
