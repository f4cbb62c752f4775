name: nccl-worker-<<NODE_RANK>>
import:
  /dataset/: volume://acme-storage/alpaca
  /repo:
    git:
      url: github.com/acme/training.git
      ref: main
      credential_name: acme
export:
  /output/: volume://acme-storage
resources:
  cluster: gpu-cluster
  preset: gpu-h100-80g-xlarge
image: quay.io/vessl-ai/torch:2.3.1-cuda12.1-r5
run: rdzv launch --framework command -- sh /repo/train.sh
env:
  MASTER_ADDR: <<MASTER_ADDR>>
  NODE_RANK: <<NODE_RANK>>
  NUM_NODES: <<NUM_NODES>>
  GPUS_PER_NODE: <<GPUS_PER_NODE>>
  RDZV_ID: <<RDZV_ID>>
  ROLE: worker
