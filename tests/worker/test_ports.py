"""Whether a port can be had: by what torch's store would run into, and by nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from worker.machine.kernel import ephemeral_range
from worker.offer.ports import find_free, is_free


@contextmanager
def listening(address: str, port: int = 0) -> Iterator[int]:
    """A listener on exactly this address; gives its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.create_server((address, port), family=family)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_port_with_a_listener_on_any_address_is_taken_until_it_closes(address: str) -> None:
    """Looking at it does not take it."""
    with listening(address) as port:
        assert not is_free(port)
    assert is_free(port)
    with listening(address, port):
        pass


def test_a_port_whose_connections_only_wait_to_be_forgotten_is_free() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.create_connection(server.getsockname())) as client,
    ):
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first is the one that waits
        assert client.recv(1) == b""
        port = server.getsockname()[1]
    with closing(socket.socket()) as plain, pytest.raises(OSError, match="Address already in use"):
        plain.bind(("127.0.0.1", port))
    assert is_free(port)


@pytest.mark.parametrize("ephemeral", [(0, 0), (1024, 65_535)])  # where all are, one is taken
def test_the_first_free_port_is_found_behind_those_that_are_taken(
    ephemeral: tuple[int, int],
) -> None:
    with listening("127.0.0.1") as port:
        assert port < (find_free(port, ephemeral) or 0) < port + 100


def test_a_port_of_outgoing_connections_is_avoided_and_above_the_last_there_is_none() -> None:
    assert (find_free(40_000, (39_000, 40_999)) or 0) >= 41_000
    assert find_free(65_536) is None


def test_the_kernel_says_which_ports_are_of_outgoing_connections() -> None:
    low, high = ephemeral_range()
    with listening("127.0.0.1") as port:
        assert low <= port <= high
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            assert low <= client.getsockname()[1] <= high
