#!/bin/sh
# Worker run <<NAME>> of run <<RDZV_ID>>, slot <<SLOT>>.
# Copy this file to a machine that can reach node 0, and start it with: sh FILE
# It holds the slot's join token: keep it readable by you alone.
export RDZV_JOIN=<<RDZV_JOIN>>
exec env <<PASS_ENV>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>
