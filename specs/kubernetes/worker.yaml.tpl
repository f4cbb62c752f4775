# Worker run <<NAME>> of run <<RDZV_ID>>, slot <<SLOT>>: a Job of one pod, and a Secret with what the
# pod is to do. rdzv finds and deletes both by their name and labels.
# Your own copy (node selector, tolerations, volumes, RDMA ...): --worker-spec FILE.
apiVersion: v1
kind: Secret
metadata:
  name: <<NAME>>
  labels: {app.kubernetes.io/managed-by: rdzv, rdzv/launch: <<LAUNCH_ID>>, rdzv/worker-run: <<NAME>>}
immutable: true
stringData:
  join: <<RDZV_JOIN>>
  # COMMAND stands here and not in the Job, where Kubernetes would make something of $(NAME) and $$.
  # An image without rdzv: begin with the line
  #   python3 -m venv /opt/rdzv && /opt/rdzv/bin/pip install "rdzv[launcher]==0.1.0" && PATH="$PATH:/opt/rdzv/bin"
  run.sh: |
    exec env <<PASS_ENV>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>
---
apiVersion: batch/v1
kind: Job
metadata:
  name: <<NAME>>
  labels: {app.kubernetes.io/managed-by: rdzv, rdzv/launch: <<LAUNCH_ID>>, rdzv/worker-run: <<NAME>>}
  annotations: {rdzv/run: <<RDZV_ID>>, rdzv/slot: "<<SLOT>>"}
spec:
  backoffLimit: 0 # rdzv itself submits again (--submit-retries), with a new name and token
  ttlSecondsAfterFinished: 86400 # for the case that nobody is left who deletes it
  template:
    metadata:
      labels: {app.kubernetes.io/managed-by: rdzv, rdzv/launch: <<LAUNCH_ID>>, rdzv/worker-run: <<NAME>>}
    spec:
      restartPolicy: Never
      # Not on the nodes of --avoid, nor where the slot's last pods have failed: by this label, which
      # mostly is the node's name. Without any, the key is left out.
      affinity: !optional
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: kubernetes.io/hostname, operator: NotIn, values: [<<AVOID>>]}
      automountServiceAccountToken: false # a worker asks nothing of Kubernetes
      enableServiceLinks: false # no variable for each service of the namespace
      terminationGracePeriodSeconds: 60 # above --grace; a pod is gone as soon as its program is
      containers:
        - name: worker
          image: <<IMAGE>> # with rdzv on its PATH: see launcher.yaml
          command: [sh, /etc/rdzv/run.sh]
          env:
            - {name: RDZV_JOIN_FILE, value: /etc/rdzv/join}
          resources:
            limits:
              nvidia.com/gpu: <<GPUS>>
              # rdma/hca: 1 # RDMA: the resource that your cluster's device plugin gives
          # securityContext: {capabilities: {add: [IPC_LOCK]}} # RDMA: locked memory
          volumeMounts:
            - {name: rdzv, mountPath: /etc/rdzv, readOnly: true}
            - {name: shm, mountPath: /dev/shm}
      volumes:
        - name: rdzv
          secret: {secretName: <<NAME>>}
        - name: shm # without it /dev/shm holds 64 MiB; what is in it counts as the pod's memory
          emptyDir: {medium: Memory}
