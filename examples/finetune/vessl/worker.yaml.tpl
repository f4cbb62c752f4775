# One worker run on VESSL: what the launcher of launcher.yaml submits for each further node.
# RDZV_JOIN is the secret of this node's slot; who can read the run can read it.
name: <<NAME>>
description: node <<SLOT>> of <<RDZV_ID>>
import:
  /code/: <<REPOSITORY>>
  /data/: volume://your-storage/your-texts
resources:
  cluster: <<CLUSTER>>
  preset: <<PRESET>>
image: <<IMAGE>>
run: env <<PASS_ENV>> sh /code/vessl/start.sh worker <<WORKER_OPTIONS>> -- <<COMMAND>>
env:
  INSTALL: <<INSTALL>>
  RDZV_JOIN: <<RDZV_JOIN>>
