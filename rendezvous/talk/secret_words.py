"""What in a text may be a secret: the value of what is named like one, and what looks like one."""

from __future__ import annotations

import re

from rendezvous.talk.join_string import without_secrets

HIDDEN = "(hidden)"
_NAMES = {
    *("secret", "secrets", "token", "password", "passwd", "passphrase", "pwd", "credential"),
    *("credentials", "auth", "authorization", "apikey", "key"),
}
# Each begins where a word does, or a long word would be looked through from each of its letters.
_INNER = (re.compile(r"(?<![\w.-])([\w.-]+)="), re.compile(r"[^\s;&|'\"]+"))
_URL = re.compile(r"(\b\w+://[^/@\s:]*):[^/@\s]+@")
_LOOKS_SECRET = re.compile(
    r"\b(?:sk|hf|ghp|gho|github_pat|glpat|xox[abp])[-_]\w{8,}|\beyJ[\w.-]{16,}"
)
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
"""Of a command line, with its quotes."""
_NAMED = (
    (re.compile(r"(?<!\S)(-{1,2}[\w-]+)\s+(?!--)"), _WORD),  # --api-key abc
    (re.compile(r"(?<![\w.-])([\w.-]+)=(?=['\"])"), _WORD),  # API_KEY='a b'
    (re.compile(r"(?<=')(?:[\w.-]+=)?([\w.-]+)="), re.compile(r"""[^']*(?:'"'"'[^']*)*(?=')""")),
)
"""Names and values that `text_without_secrets` does not know, or of which it leaves the end: the
last ones are '--api-key=a b', and '--env=API_KEY=a b', with quotes around all of it."""


def lines_without_secrets(text: str) -> str:
    """The text without what may be a secret, also where a command line stands in it."""
    text = text_without_secrets(text)
    for name, value in _NAMED:
        text = _without_values(text, name, value)
    return text


def _without_values(text: str, name: re.Pattern[str], value: re.Pattern[str]) -> str:
    """Look what follows the name of no secret through as well."""
    parts, at = list[str](), 0
    for found in name.finditer(text):
        if found.start() >= at and is_secret(found[1]) and (hit := value.match(text, found.end())):
            parts += [text[at : found.end()], HIDDEN]
            at = hit.end()
    return "".join([*parts, text[at:]])


def text_without_secrets(text: str) -> str:
    """The text without what may be a secret in it."""
    text = _without_values(text, *_INNER)
    text = _URL.sub(rf"\1:{HIDDEN}@", without_secrets(text))
    return _LOOKS_SECRET.sub(HIDDEN, text)


def is_secret(name: str) -> bool:
    """Whether what has this name is a secret."""
    return bool(_NAMES & set(re.split(r"[-_.]", name.lower())))
