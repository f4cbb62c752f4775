#!/bin/sh
# All nodes serve one model; node 0 answers at port 8000, and its client, "$@", ends the run.
export VLLM_HOST_IP="$RDZV_NODE_ADDRESS"
serve() {
    vllm serve "$MODEL" --tensor-parallel-size "$NPROC_PER_NODE" --pipeline-parallel-size "$NNODES" \
        --nnodes "$NNODES" --node-rank "$NODE_RANK" \
        --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" "$@"
}
if [ "$NODE_RANK" = 0 ]; then
    serve &
    rdzv wait-for head:8000 --timeout 1800 && "$@"
else
    serve --headless
fi
