"""Prove that a world has formed: one all_reduce over gloo with a checked sum, then a line per rank.

Run by torchrun. Each rank prints `RESULT {...}` only after its checks have passed.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import socket
from collections import defaultdict

import torch
import torch.distributed as dist


def checked_sum() -> int:
    """Add up rank + 1 over all ranks."""
    world_size = dist.get_world_size()
    total = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(total)
    expected = world_size * (world_size + 1) // 2
    if total != expected:
        raise SystemExit(f"all_reduce over {world_size} ranks gave {total}, not {expected}")
    return int(total)


def resolve(name: str) -> set[str]:
    """Give the addresses of a name; one that is mapped into IPv6 counts as the IPv4 one it is."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
    except socket.gaierror:
        return set()
    addresses = map(ipaddress.ip_address, found)
    return {str(getattr(address, "ipv4_mapped", None) or address) for address in addresses}


def check_names(expectations: list[str]) -> None:
    """Hold each name against exactly the addresses that are given for it."""
    expected: defaultdict[str, set[str]] = defaultdict(set)
    for name, _, address in (expectation.partition("=") for expectation in expectations):
        expected[name].add(address)
    for name, addresses in expected.items():
        if (found := resolve(name)) != addresses:
            here = socket.gethostname()
            raise SystemExit(f"on {here}, {name} is {sorted(found)}, not {sorted(addresses)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expect", metavar="NAME=ADDRESS", action="append", default=[])
    options = parser.parse_args()
    check_names(options.expect)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    result = {
        "rank": dist.get_rank(),
        "sum": checked_sum(),
        "hostname": socket.gethostname(),
        "master_addr": os.environ["MASTER_ADDR"],
    }
    # One write for the whole line: ranks that share a pipe do not interleave theirs.
    os.write(1, f"RESULT {json.dumps(result)}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
