# ruff: noqa: E501
"""Bugs in what a full queue does, and in who sends again what was not taken, as in `planted`."""

from __future__ import annotations

# fmt: off
QUEUES: dict[str, list[tuple[str, str, str]]] = {
    "rendezvous/server/log_views.py": [
        ('queues: lines without room count as known', '            wait = self._room(len(written), now)\n', '            view.numbers[key] = post.number\n            wait = self._room(len(written), now)\n'),
        ('queues: lines without room are taken', 'return ViewReply(goes_on=True, taken=False, wait=_FULL_SECONDS)', 'return ViewReply(goes_on=True, wait=_FULL_SECONDS)'),
        ('queues: lines that are sent again are shown again', 'if post.number <= view.numbers.get(key, 0):', 'if post.number < view.numbers.get(key, 0):'),
        ('queues: lines are shown until others come', 'view.pieces[0][0] <= after:', 'view.pieces[0][0] < after:'),
    ],
    "rendezvous/server/relay.py": [
        ('queues: frames without room are lost', '            raise TooManyRequests(\n', '            return\n            raise TooManyRequests(\n'),
    ],
    "rendezvous/server/sequencer.py": [
        ('queues: what finds no room is answered', '            raise Unavailable("the registry has more requests than it can handle")\n', '            return\n'),
    ],
    "worker/agent/metrics.py": [
        ('queues: rows that were dropped have no number', '        self._waiting.popleft()\n        self._first += 1\n        self._dropped += 1\n', '        self._waiting.popleft()\n        self._dropped += 1\n'),
        ('queues: rows that were taken are sent again', '        while self._first < following:\n            self._waiting.popleft()\n            self._first += 1\n', '        self._first = max(self._first, following)\n'),
    ],
    "worker/agent/views.py": [
        ('queues: lines are sent once', '            if reply.taken:\n                return reply\n', '            return reply\n'),
    ],
    "worker/agent/watching.py": [
        ('queues: what a watch brought without room is gone', '        case inputs.Failed(error=RegistryError(told=True)):\n            _not_now(turn, said.error.message)', '        case inputs.Failed(error=RegistryError(told=True)):\n            _brought(turn, asked)\n            _not_now(turn, said.error.message)'),
    ],
    "worker/rsh/exchange.py": [
        ('queues: frames are given once', '                for place in await until_answered(\n                    self._give_batch, failed=_say_waits, pause=self._registry.pause\n                ):\n                    self._waiting.pop(place, None)  # it may have been taken back', '                try:\n                    await self._give_batch()\n                except RdzvError as exc:\n                    _say_waits(exc)\n                self._waiting.clear()'),
    ],
}
# fmt: on
