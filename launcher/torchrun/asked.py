"""What a torchrun asks for with its flags: checked, and as rdzv's own options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from launcher.plan.plan import check_run_id
from launcher.settings import LaunchSettings
from launcher.torchrun.words import Begin, Next
from rendezvous.frozen import frozen
from rendezvous.talk.join_string import own_port
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import DEFAULT_PORT
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import did_you_mean, size_text
from worker.contracts.plugin import PLUGIN
from worker.options import not_observing
from worker.settings import WorkerSettings

CONF: Final = ("join_timeout", "last_call_timeout", "standby", "rank", "nproc", "is_host")
"""The keys of `--rdzv-conf` that this backend takes."""
_OF_TORCHRUN: Final = "timeout"
"""torchrun always gives it, and nobody reads it."""
NEAR: Final = ("127.0.0.1",)
"""Where a registry of this machine is reached from here."""
_TRUE, _FALSE = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")
LEAST_GRACE_SECONDS: Final = 40.0
"""torchrun takes up to 30 s to end its workers, and cannot be told of less."""
MOST_REPLACEMENTS: Final = 10_000
_UNSPECIFIED: Final = ("0.0.0.0", "::")  # noqa: S104 (whoever gives it means this machine)
_NOT_FOR_A_HOST: Final = {
    name: LaunchSettings.model_fields[name].get_default(call_default_factory=True)
    for name in (
        *("scheduler", "scheduler_profile", "hostlist", "hostfile", "avoid", "worker_spec", "set"),
        *("pass_env", "env", "env_file", "secret_env", "cwd", "ends_with", "spares", "dry_run"),
        *("json_events", "ui", "parent", "role"),
    )
}
"""It starts nothing; and a program of another run has the variables of some of these."""


@frozen
class Asked:
    """One torchrun's wish.

    Attributes:
        host: Where the registry is to be; empty: at a standing one.
        port: Of the registry.
        run: The run's ID.
        size: MIN and MAX.
        join_timeout: Seconds; None: the usual.
        last_call: Seconds; None: the usual.
        standby: How many nodes stand by.
        node: The number that this node wants; None: any.
        is_host: Whether the registry is to be on this machine; None: see.
    """

    host: str
    port: int
    run: str
    size: tuple[int, int]
    join_timeout: float | None = None
    last_call: float | None = None
    standby: int = 0
    node: int | None = None
    is_host: bool | None = None

    @property
    def slots(self) -> int:
        """How many nodes there may be."""
        return self.size[1] + self.standby

    @property
    def loopback(self) -> bool:
        """Whether the endpoint is the machine itself wherever it is looked up."""
        return self.host in _UNSPECIFIED or is_loopback(self.host)

    @property
    def alone(self) -> bool:
        """Whether no other machine takes part. Of several nodes some may be elsewhere: platforms
        give `localhost` to the first one, and its name to the others."""
        return self.loopback and self.slots == 1


def read_asked(begin: Begin) -> Asked:
    """What is asked for. Raises UsageError with what to change."""
    if begin.run in ("", "none"):
        raise UsageError(
            "torchrun was given no --rdzv-id: two jobs of one name would meet",
            hint="give all nodes of a job the same --rdzv-id, and each job another",
        )
    conf = begin.conf
    _refuse_unknown(conf)
    host, port = _endpoint(begin.endpoint)
    return Asked(
        host,
        port,
        check_run_id(begin.run),
        begin.nodes,
        join_timeout=_number(conf, "join_timeout"),
        last_call=_number(conf, "last_call_timeout"),
        standby=int(_number(conf, "standby") or 0),
        node=None if "rank" not in conf else int(_number(conf, "rank") or 0),
        is_host=_is_true(conf, "is_host"),
    )


def _refuse_unknown(conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        if value.startswith(("rdzvtok1-", "rdzvreg1-", "rdzv1-")) or "token" in key:
            raise UsageError(
                f"--rdzv-conf {key} holds a credential, which torchrun writes into its log",
                hint="take another one ('rdzv token new'), and give it in a file that "
                "RDZV_TOKEN_FILE names",
            )
        if key not in (*CONF, _OF_TORCHRUN):
            close = did_you_mean(key, CONF)
            raise UsageError(
                f"--rdzv-conf {key} means nothing to the backend rdzv",
                hint=close or f"it takes {', '.join(CONF)}",
            )


def _endpoint(text: str) -> tuple[str, int]:
    """Host and port; of an empty one neither, where there is a standing registry."""
    text = text.strip()
    host, port = own_port(text) or (text.strip("[]"), DEFAULT_PORT)
    if any(mark in host for mark in "/@, ") or (":" in host and host.count(":") < 2):
        raise UsageError(
            f"--rdzv-endpoint {text!r} is not HOST:PORT",
            hint="name the machine of one node, by an address that all nodes reach: "
            "--rdzv-endpoint 10.0.0.4:29600",
        )
    return host, port


def _number(conf: Mapping[str, str], key: str) -> float | None:
    text = conf.get(key)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    whole = key in ("standby", "rank")
    if not 0 <= number <= 1_000_000 or (whole and not number.is_integer()):
        what = "a whole number" if whole else "a number of seconds"
        raise UsageError(f"--rdzv-conf {key}={text} is not {what}")
    return number


def _is_true(conf: Mapping[str, str], key: str) -> bool | None:
    text = conf.get(key)
    if text is None:
        return None
    if text.lower() not in (*_TRUE, *_FALSE):
        raise UsageError(f"--rdzv-conf {key}={text} is neither 1 nor 0")
    return text.lower() in _TRUE


def command_of(begin: Begin) -> list[str]:
    """What stands for the torchrun that runs already: it tells whose Python the workers have."""
    return [begin.python, "-m", "torch.distributed.run"]


def node_settings(asked: Asked, node: Next, given: WorkerSettings) -> WorkerSettings:
    """The options of this node.

    Args:
        asked: Of the torchrun.
        node: What its agent has told.
        given: What a person has set with variables.
    """
    told: dict[str, object] = {
        "framework": PLUGIN.name,
        "nnodes": size_text(*asked.size),
        "nproc_per_node": str(node.processes),
        "node_rank": None,
        "grace": max(LEAST_GRACE_SECONDS, given.grace),
        "early_start": "off",
        "warm": "off",
        "look": "off",
        **not_observing(),
        "loopback": asked.alone,
    }
    if asked.join_timeout is not None:
        told["join_timeout"] = asked.join_timeout
    if asked.alone:
        told["hosts"] = "off"
    return given.model_copy(update=told)


def host_settings(asked: Asked, given: LaunchSettings) -> LaunchSettings:
    """The options of the launch that has the registry, and no node.

    Args:
        asked: Of the torchrun.
        given: What a person has set with variables.
    """
    told: dict[str, object] = {
        "rdzv_id": asked.run,
        "framework": PLUGIN.name,
        "nnodes": size_text(*asked.size),
        "nproc_per_node": "1",
        "port": asked.port,
        "node_rank": 0,
        "master_addr": NEAR[0] if asked.loopback else asked.host,
        "local_node": False,
        "any_command": True,
        "on_node_loss": "replace",
        "max_replacements": MOST_REPLACEMENTS,
        "max_restarts": 0,
        "standby": asked.standby,
        "grace": max(LEAST_GRACE_SECONDS, given.grace),
        **not_observing(),
        **_NOT_FOR_A_HOST,
    }
    if asked.join_timeout is not None:
        told["join_timeout"] = asked.join_timeout
    if asked.last_call is not None:
        told["last_call"] = asked.last_call
    return given.model_copy(update=told)
