#!/bin/sh
# Worker run rdzv-k7f2a9c1xy-1-1 of run llama, slot 1.
# Copy this file to a machine that can reach rank 0, and start it with: sh FILE
# It holds the slot's join token: keep it readable by you alone.
export RDZV_JOIN=RDZV_JOIN-hidden
exec env 'GREETING=good morning' NCCL_DEBUG=INFO rdzv worker --nnodes 4 --nproc-per-node 1 --network 10.0.0.0/8 --grace 2.5 -- train.py --name 'it'"'"'s a "test"' '$HOME' '' -- 'two
lines' 'a=b c: #d'
