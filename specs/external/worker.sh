#!/bin/sh
# One worker of run <<RDZV_ID>>, started by whatever you like: it takes a join string out of the
# folder, which it shares with the launcher. All workers run these same lines; more workers than
# slots are spares, which wait.
export RDZV_JOIN_FILE=<<JOIN_FOLDER>>
exec env <<PASS_ENV>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>
