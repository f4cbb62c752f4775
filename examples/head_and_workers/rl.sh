#!/bin/sh
# Node 0 trains, node 1 rewards, the others roll out; the end of the training is the run's.
case $NODE_RANK in
    0)
        rdzv wait-for node-1:9000 || exit
        for node in $(seq 2 $((NNODES - 1))); do rdzv wait-for "node-$node:8000" || exit; done
        exec python3 train.py
        ;;
    1) exec python3 reward.py --host "$RDZV_NODE_ADDRESS" --port 9000 ;;
    *) exec vllm serve "$MODEL" --host "$RDZV_NODE_ADDRESS" --port 8000 ;;
esac
