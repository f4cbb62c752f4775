"""Whether an address that this machine had can still be used."""

from __future__ import annotations

import sys

import pytest

from tests.support.netlab import Lab
from worker.machine.interfaces import why_unusable

LOOK = """
import sys
from worker.machine.interfaces import why_unusable
print(why_unusable(*sys.argv[1:]))
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.3"])
def test_an_address_of_an_interface_that_is_up_can_be_used(address: str) -> None:
    assert why_unusable(address, "lo") == ""


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_an_address_that_is_gone_is_named(address: str) -> None:
    assert why_unusable(address, "ib0") == f"its address {address} (ib0) is gone"


@pytest.mark.netns
def test_an_interface_that_is_down_is_named() -> None:
    with Lab(1) as lab:
        host = lab.hosts[0]
        look = [sys.executable, "-c", LOOK, host.address, "eth0"]
        before = host.run(look).stdout
        lab.link_down(host)
        assert before == "\n"
        assert host.run(look).stdout == f"its interface eth0 ({host.address}) is down\n"
