"""Rules for the source, checked on its syntax; each one is shown to catch what it is against."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator

import pytest

from tests.support.sources import nodes, tree_of
from tests.test_packages import ROOT, modules, tree

Found = Iterator[tuple[ast.AST, str]]


@functools.cache
def sources() -> dict[str, ast.Module]:
    """Every module that is shipped, by its path inside the distribution."""
    above = modules()["rendezvous"].parents[1]
    found = {str(path.relative_to(above)): tree(name) for name, path in modules().items()}
    doors = ("rdzv_command.py", "rdzv/__main__.py", "rdzv/metrics.py")
    return found | {name: tree_of(ROOT / name) for name in doors}


@functools.cache
def calls(tree: ast.AST) -> list[tuple[ast.Call, str]]:
    """Every call, with the dotted name of what is called, as it is written."""
    found = [node for node in nodes(tree) if isinstance(node, ast.Call)]
    return [(node, ast.unparse(node.func)) for node in found]


def imported(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Every module that is imported, and every name from one, dotted."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, node.module or ""
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


@functools.cache
def keywords(call: ast.Call) -> dict[str, str]:
    """The keyword arguments of a call, as they are written."""
    return {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}


# ---- the rules ----------------------------------------------------------------------------------

_CODE = ("compile", "__import__")
_LOADERS = {"_pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}


def code_from_data(tree: ast.AST) -> Found:
    """What arrives is data and stays data; ruff (S1, S3, S5, S6) finds eval, pickle and shells."""
    for statement, name in imported(tree):
        if name.split(".")[0] in _LOADERS:
            yield statement, f"import {name}"
    for node, name in calls(tree):
        if name in _CODE or name.endswith("create_subprocess_shell"):
            yield node, name
        elif (given := keywords(node)).get("close_fds", "True") != "True":
            yield node, f"{name}(close_fds={given['close_fds']})"


# A digest of a table or of a COMMAND is not among them: everyone may know it.
_SECRETS = ("token", "secret", "mac", "credential", "sha256", "hmac", "signature", "proof", "_key")
_MADE = ("digest", "hexdigest")


def _is_secret(operand: ast.expr) -> bool:
    if isinstance(operand, ast.Call):
        return _last_name(operand.func).endswith((*_MADE, *_SECRETS))
    return _last_name(operand).endswith(_SECRETS)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return str(name).lower().rstrip("s")


def secret_compared(tree: ast.AST) -> Found:
    """Comparing tells by its duration how much was right: hmac.compare_digest does not."""
    for node in nodes(tree):
        if not isinstance(node, ast.Compare):
            continue
        for operator, right in zip(node.ops, node.comparators, strict=True):
            absent = isinstance(right, ast.Constant) and right.value in (None, "", b"")
            equality = isinstance(operator, ast.Eq | ast.NotEq) and not absent
            if equality and (_is_secret(node.left) or _is_secret(right)):
                yield node, ast.unparse(node)


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def unverified(tree: ast.AST) -> Found:
    """A server proves itself before it is told anything."""
    for node, name in calls(tree):
        if keywords(node).get("verify") == "False":
            yield node, f"{name}(verify=False)"
        if name.endswith(("_create_unverified_context", "_create_stdlib_context")):
            yield node, name
        if name.endswith("wrap_socket") and name.startswith("ssl."):
            yield node, name
    for part in nodes(tree):
        if isinstance(part, ast.Attribute) and part.attr in ("CERT_NONE", "CERT_OPTIONAL"):
            yield part, part.attr
        if isinstance(part, ast.Assign) and _is_false(part.value):
            words = ast.unparse(part)
            if words.endswith("check_hostname = False"):
                yield part, words


_HTTP_CALLS = ("get", "post", "put", "patch", "delete", "head", "options", "request", "stream")


def environment_obeyed(tree: ast.AST) -> Found:
    """HTTPS_PROXY, SSL_CERT_FILE, SSLKEYLOGFILE and NETRC are not asked where secrets go."""
    for node, name in calls(tree):
        if name in ("httpx.Client", "httpx.AsyncClient"):
            if keywords(node).get("trust_env") != "False":
                yield node, f"{name} without trust_env=False"
        elif name.startswith("httpx.") and name.removeprefix("httpx.") in _HTTP_CALLS:
            yield node, name
        elif name.endswith(("ssl.create_default_context", "httpx.create_ssl_context")):
            yield node, name
    for statement, name in imported(tree):
        if name in ("urllib.request", "requests", "aiohttp", "http.client"):
            yield statement, f"import {name}"


def deciding_assert(tree: ast.AST) -> Found:
    """`python -O` drops asserts: they may say what is known, and must not do or decide anything."""
    for node in nodes(tree):
        if isinstance(node, ast.Assert) and not _says_what_is_known(node.test):
            yield node, ast.unparse(node)


def _says_what_is_known(test: ast.expr) -> bool:
    """`x is not None`, or `isinstance(x, ...)`."""
    if isinstance(test, ast.Call):
        return ast.unparse(test.func) == "isinstance"
    return isinstance(test, ast.Compare) and ast.unparse(test).endswith(" is not None")


# ---- the source ---------------------------------------------------------------------------------

_NETWORK, _VESSL = "rendezvous/talk/http_network.py", "launcher/schedulers/vessl_api.py"
# Where a rule is broken, and why that is right.
ALLOWED = {
    (unverified, _NETWORK, "CERT_NONE"),  # looks at a certificate, sends nothing
    (unverified, _NETWORK, "context.check_hostname = False"),
    # VESSL's own API, by the system's authorities; http.client asks no environment
    (environment_obeyed, _VESSL, "import http.client"),
}

Rule = Callable[[ast.AST], Found]


PLANTED: dict[Rule, list[str]] = {
    code_from_data: [
        "from marshal import loads",
        "def f():\n    import cloudpickle.compat",
        "compile(x, '', 'exec')",
        "asyncio.create_subprocess_shell(x)",
        "subprocess.Popen(x, close_fds=False)",
    ],
    secret_compared: [
        *("token == shown", "shown.secret != expected", "row.mac == mac", "spec.tokens[0] == x"),
        *("hmac.new(k, x).hexdigest() == y", "a == shown.sha256()", "x if a == row_key else y"),
    ],
    unverified: [
        *("httpx.get(u, verify=False)", "context.verify_mode = ssl.CERT_NONE"),
        *("context.check_hostname = False", "ssl._create_unverified_context()"),
        "ssl.wrap_socket(s)",
    ],
    environment_obeyed: [
        *("httpx.AsyncClient(verify=c)", "httpx.Client(trust_env=True)", "httpx.get(u)"),
        *("ssl.create_default_context()", "import urllib.request"),
        "from http.client import HTTPSConnection",
    ],
    deciding_assert: [
        *("assert token.matches(x)", "assert slot == 3", "assert (x := check()) is None"),
    ],
}


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    broken = {
        (rule, path, what): getattr(node, "lineno", 0)
        for path, tree in sources().items()
        for node, what in rule(tree)
    }
    assert {place for place in broken if place not in ALLOWED} == set()
    assert {place for place in ALLOWED if place[0] is rule} <= set(broken), "no exception is stale"


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_the_rule_catches_what_is_planted_and_lets_pass_what_is_right(rule: Rule) -> None:
    assert [planted for planted in PLANTED[rule] if not [*rule(ast.parse(planted))]] == []
    assert list(rule(ast.parse(INNOCENT))) == []


INNOCENT = """
import hmac, subprocess, yaml
yaml.load(text, Loader=yaml.SafeLoader)
yaml.safe_load(text)
subprocess.run(["ls"], shell=False)
if token is None or secret == "" or len(key) != 32 or credential.kind == "node":
    pass
hmac.compare_digest(token, shown)
run.digest != report.digest
httpx.AsyncClient(verify=context, trust_env=False)
assert node is not None
assert isinstance(exc, Error)
"""


def test_the_tests_that_the_security_page_names_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:attack|worker)/[a-z_./]+)`", text)
    assert len(named) > 8
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


def test_every_rule_sees_the_source() -> None:
    assert len(sources()) > 40
    assert {
        "rdzv_command.py",
        "rendezvous/talk/http_network.py",
        "launcher/plan/template/placeholder.py",
    } <= set(sources())
