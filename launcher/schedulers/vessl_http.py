"""VESSL by its HTTP API: the specs of `vessl`, without VESSL's command.

For images whose Python is none that the command runs on. The API is the one that the command's
published client calls. A spec is sent as it is, so every value arrives as it was written.

After a failure the run is looked for by its name. A submit is tried again where no run can have
been made (no connection, too many requests), and where the API said that it failed and no run is
found; not where there was no answer at all: what is slow may still make one.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from typing import Any

from launcher.plan.plan import HIDDEN, Submission, WorkerRun
from launcher.schedulers.command import clean
from launcher.schedulers.contract import (
    NothingSubmitted,
    Scheduler,
    SchedulerContext,
    Trouble,
    unheard,
)
from launcher.schedulers.description import OVER, Description
from launcher.schedulers.vessl import VesslSpecs
from launcher.schedulers.vessl_account import find_account
from launcher.schedulers.vessl_api import (
    Api,
    ApiFailed,
    ApiLost,
    ApiNotSent,
    ApiRefused,
    rows_of,
)
from launcher.schedulers.vessl_values import load_spec
from rendezvous.wire.errors import SchedulerError, UsageError

_TRIES = 3
_PAGE = 100
_MOST_PAGES = 50
_FOLLOW_SECONDS = 2.0
_MOST_LINES = 10_000
_NOT_FOUND = 404


class VesslHttpScheduler(Scheduler):
    """See the module."""

    name = "vessl-http"
    keeps_logs = True
    poll_seconds = 5.0
    try_again_seconds = 1.0
    looks = (0.0, 0.5, 1.5)

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._specs = VesslSpecs(self.name, context)
        self._clusters: list[str] | None = None

    def _api(self) -> Api:
        """The API; inside a run the token is renewed now and then, so it is read for each call."""
        try:
            account = find_account(self._context.environ)
        except UsageError as exc:
            raise SchedulerError(exc.message, hint=exc.hint) from exc
        return Api(account, self._specs.profile.timeout_seconds, self.try_again_seconds)

    # --- submitting ---------------------------------------------------------------------------

    def prepare(self, run: Submission, join: str) -> str:
        """See the contract."""
        text = self._specs.render(run, join)
        load_spec(text, run.source)
        return f"# {self.submit_words(run)}\n{text}"

    def submit_words(self, run: Submission) -> str:
        """See the contract."""
        return "POST .../run/spec/create_from_yaml"

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        """See the contract."""
        self.prepare(run, HIDDEN)
        text = self._specs.render(run, join)
        try:
            api = self._api()
            await self._check_cluster(api, load_spec(text, run.source))
        except SchedulerError as exc:
            raise NothingSubmitted(exc.message, hint=exc.hint) from exc
        try:
            return await self._create(api, run, text, trouble)
        except SchedulerError as exc:
            nothing = isinstance(exc, (ApiRefused, ApiNotSent))
            kind = NothingSubmitted if nothing else SchedulerError
            raise kind(exc.message, hint=exc.hint) from exc

    async def _check_cluster(self, api: Api, spec: dict[str, Any]) -> None:
        """A run for a cluster that does not exist could wait for ever."""
        resources = spec["resources"]
        cluster = resources.get("cluster") if isinstance(resources, dict) else None
        if cluster is None:
            return
        if self._clusters is None or cluster not in self._clusters:
            self._clusters = await api.clusters()
        if cluster not in self._clusters:
            raise SchedulerError(
                f"there is no cluster '{cluster}' in '{api.account.organization}'",
                hint=f"its clusters are: {', '.join(self._clusters)}",
            )

    async def _create(self, api: Api, run: Submission, text: str, trouble: Trouble) -> str:
        last: SchedulerError | None = None
        for number in range(_TRIES):
            await asyncio.sleep(number and self.try_again_seconds * 2 ** (number - 1))
            try:
                answer = await api.post("run/spec/create_from_yaml", {"yaml_spec": text})
                return _id(answer)
            except ApiNotSent as exc:
                last = last or exc
                await trouble(exc.message)
            except ApiLost as exc:
                await trouble(exc.message)
                handle = await self._look(exc, run)
                if handle is not None:
                    return handle
                last = SchedulerError(f"{exc.message}; there is no run {run.name}", hint=exc.hint)
                if not isinstance(exc, ApiFailed):
                    break
        assert last is not None
        raise last

    async def _look(self, lost: ApiLost, run: WorkerRun) -> str | None:
        """Whether the run was made all the same; raises SchedulerError if nobody knows."""
        for seconds in self.looks:
            await asyncio.sleep(seconds)
            try:
                handle = await self.find(run)
            except SchedulerError as exc:
                raise SchedulerError(
                    f"{lost.message}; rdzv does not know whether worker run {run.name} was made: "
                    f"{exc.message}",
                    hint="look for a run with that name, and end it",
                ) from exc
            if handle is not None:
                return handle
        return None

    # --- afterwards ---------------------------------------------------------------------------

    async def find(self, run: WorkerRun) -> str | None:
        """See the contract."""
        rows = await self._named(self._api(), run)
        return str(rows[0]["id"]) if rows else None

    async def _named(self, api: Api, run: WorkerRun) -> list[dict[str, Any]]:
        """All runs of that name; the newest runs come first, so it is seldom a long search."""
        seen: set[object] = set()
        for page in range(_MOST_PAGES):
            query = {"limit": _PAGE, "offset": page * _PAGE}
            rows = rows_of(await api.get("run_executions", query), "results")
            named = [row for row in rows if _text(row.get("run_spec"), "title") == run.name]
            new = {row.get("id") for row in rows} - seen
            if named or not new or len(rows) < _PAGE:
                return named
            seen |= new
        return []

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """See the contract."""
        try:
            answer = await self._api().get(f"run_executions/{_number(handle)}")
        except ApiRefused as exc:
            if exc.http_status == _NOT_FOUND:
                return self._specs.unknown(run)
            raise
        status, reason = _text(answer, "status"), _text(answer, "status_reason")
        return self._specs.told(run, status, reason)

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """See the contract; every run of that name is ended."""
        api = self._api()
        self._specs.remember(run)
        await self._terminate(api, run, handle)
        states = self._specs.profile.states
        for row in await self._named(api, run):
            if str(row["id"]) != handle and _text(row, "status") not in (
                *states.ended,
                *states.failed,
            ):
                await self._terminate(api, run, str(row["id"]))

    async def _terminate(self, api: Api, run: WorkerRun, handle: str) -> None:
        try:
            await api.post(f"run_executions/{_number(handle)}/terminate", {})
        except (ApiRefused, ApiLost):
            found = await self.describe(run, handle)
            if found.state in OVER:
                return
            raise

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        """See the contract."""
        if handle is None:
            return ""
        try:
            url = self._api().url(f"run_executions/{_number(handle)}/terminate")
        except SchedulerError:
            return ""
        return f'curl -X POST -H "Authorization: Token $VESSL_ACCESS_TOKEN" {shlex.quote(url)}'

    async def logs(
        self, run: WorkerRun, handle: str, *, lines: int, follow: bool
    ) -> AsyncIterator[str]:
        """See the contract."""
        after, limit = 0.0, lines
        while True:
            over = follow and (await self.describe(run, handle)).state in OVER
            query = {"log_limit": limit, "log_start": after}
            path = f"run_executions/{_number(handle)}/logs"
            for row in rows_of(await self._api().get(path, query), "logs"):
                after = float(row.get("timestamp") or after) + 1e-6
                message = str(row.get("message", "")).replace("\\n", "\n")
                for line in clean(message.encode()).splitlines():
                    yield line
            if over or not follow:
                return
            limit = _MOST_LINES
            await asyncio.sleep(_FOLLOW_SECONDS)


def _id(answer: Any) -> str:
    """The id of the run that was made; an answer without one is as good as none."""
    made = answer.get("run_execution") if isinstance(answer, dict) else None
    found = made.get("id") if isinstance(made, dict) else None
    if not isinstance(found, int) or isinstance(found, bool):
        raise ApiLost("VESSL's API answered without the id of a run")
    return str(found)


def _text(answer: Any, key: str) -> str:
    value = answer.get(key) if isinstance(answer, dict) else None
    return "" if value is None else str(value)


def _number(handle: str) -> str:
    """An id as it stands in a path; what is no number is never one of VESSL's."""
    return handle if handle.isascii() and handle.isdigit() else "0"
