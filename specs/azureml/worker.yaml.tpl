# Worker run <<NAME>> of run <<RDZV_ID>>, slot <<SLOT>>: a command job of one node.
# Your own copy (identity, inputs, queue settings ...): --worker-spec FILE.
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
type: command
name: <<NAME>>
display_name: <<RDZV_ID>> slot <<SLOT>>
experiment_name: rdzv
tags: {rdzv_launch: <<LAUNCH_ID>>}
# Azure ML makes something of ${{...}} in a command; all else goes to a shell as it stands.
# An image without rdzv: begin the command with
#   python3 -m venv /opt/rdzv && /opt/rdzv/bin/pip install "rdzv[launcher]==0.1.0" && PATH="$PATH:/opt/rdzv/bin" &&
command: exec env <<PASS_ENV>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>
code: <<CODE>>
environment: {image: <<IMAGE>>} # with rdzv on its PATH: see launcher.yaml
compute: <<COMPUTE>>
environment_variables:
  # Whoever may read the workspace's jobs can read it: it lets one node join this one run, as long as
  # the run lasts and the slot's node is not there.
  RDZV_JOIN: <<RDZV_JOIN>>
resources:
  instance_count: 1
  shm_size: 16g # /dev/shm; 2g without it
