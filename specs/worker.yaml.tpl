# One worker run on VESSL: what the launcher of launcher.yaml submits for each further node.
# Yours goes into a copy: mounts, volumes, `export`; the launcher's RDZV_WORKER_SPEC names it.
# RDZV_JOIN is the secret of this node's slot; who can read the run can read it.
name: <<NAME>>
description: node <<SLOT>> of <<RDZV_ID>>
import:
  /code/: <<REPOSITORY>>
resources:
  cluster: <<CLUSTER>>
  preset: <<PRESET>>
image: <<IMAGE>>
run: command -v rdzv > /dev/null || sh -c "$INSTALL" && exec env <<PASS_ENV>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>
env:
  INSTALL: <<INSTALL>>
  RDZV_JOIN: <<RDZV_JOIN>>
