#!/bin/sh
# Worker run <<NAME>>.
export RDZV_JOIN=<<RDZV_JOIN>>
export RDZV_STATE_DIR="$FARM_FOLDER/elsewhere"  # another machine's disk
export SLOT=<<SLOT>> GENERATION=<<GENERATION>>
if [ -n "$FARM_PROLOGUE" ]; then . "$FARM_PROLOGUE"; fi
exec env <<PASS_ENV>> rdzv worker --address "10.77.0.$((SLOT + 1))" <<WORKER_OPTIONS>> -- <<COMMAND>>
