#!/bin/sh
export RDZV_JOIN=<<RDZV_JOIN>>
exec env <<PASS_ENV>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>
