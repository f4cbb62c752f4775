#!/bin/sh
# Node 0 is Ray's head and runs the driver, "$@"; the others are its workers.
if [ "$NODE_RANK" = 0 ]; then
    ray start --head --node-ip-address="$RDZV_NODE_ADDRESS" --port=6379 &&
        RAY_ADDRESS="$RDZV_NODE_ADDRESS:6379" "$@"
else
    rdzv wait-for head:6379 &&
        ray start --address="$MASTER_ADDR:6379" --node-ip-address="$RDZV_NODE_ADDRESS" --block
fi
