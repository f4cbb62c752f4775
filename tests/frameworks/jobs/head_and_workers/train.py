"""A trainer: asks each rollout server for a sample, and the reward server for its score."""

import json
import os
import socket
import urllib.request

with open(os.environ["RDZV_TABLE"]) as file:
    addresses = [row["address"] for row in json.load(file)["nodes"]]
rewards = socket.create_connection((addresses[1], 9000)).makefile("rw")
for address in addresses[2:]:
    with urllib.request.urlopen(f"http://{address}:8000/") as answer:
        sample = json.load(answer)["model"]
    rewards.write(f"a sample of {sample}\n")
    rewards.flush()
    print(f"RL {address} reward {int(rewards.readline())}", flush=True)
