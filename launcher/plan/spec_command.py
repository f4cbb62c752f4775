"""A worker spec that starts no `rdzv worker`: its node would never join. Pure.

A spec may call a script that does, so this is a warning: it names what stands where ours would.
"""

from __future__ import annotations

import re
from typing import Final

from launcher.plan.plan import Spec
from launcher.plan.template import line_at

_BETWEEN = r"""["'\s,-]+"""
_STARTS: Final = re.compile(
    rf"<<WORKER_OPTIONS>>|(?:\brdzv|\$\{{?\w*RDZV\w*\}}?|\S*start\.sh){_BETWEEN}worker\b"
)
_LAUNCHERS: Final = re.compile(
    rf"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b|\baccelerate{_BETWEEN}launch\b"
    rf"|\bdeepspeed\b|\bmpirun\b|\bmpiexec\b|\bhorovodrun\b|\brdzv{_BETWEEN}launch\b"
    rf"|\bcolossalai{_BETWEEN}run\b|\btune{_BETWEEN}run\b|\bllamafactory-cli\b"
    rf"|\baxolotl{_BETWEEN}train\b|\bpython[0-9.]*\b"
)
_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_KEYS: Final = re.compile(r"""^[\s-]*["']?(?:run|command|args|argv|script)["']?\s*[:=]""", re.M)


def without_rdzv(spec: Spec) -> str:
    """What is wrong with a spec that starts no `rdzv worker`; empty for one that does."""
    text = _COMMENT.sub(lambda found: " " * len(found.group()), spec.template)
    if _STARTS.search(text):
        return ""
    instead = "rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>"
    found = _LAUNCHERS.search(text)
    if found is not None:
        words = " ".join(re.sub(r"""["',-]+\s|["',]""", " ", found.group()).split())
        where = f"{spec.source}:{line_at(text, found.start())} starts '{words}'"
        return (
            f"{where}, and nothing in that spec starts 'rdzv worker': its node would never join; "
            f"write '{instead}' there"
        )
    key = _KEYS.search(text)
    line = f":{line_at(text, key.end())}" if key is not None else ""
    return (
        f"nothing in {spec.source}{line} starts 'rdzv worker': unless a script that it calls does, "
        f"its node never joins; write '{instead}' there"
    )
