"""Environments as platforms set them: of one node each, with what surrounds what counts."""

from __future__ import annotations

from launcher.symmetric.claim import Host

NOBODY = Host()


def of(text: str) -> dict[str, str]:
    """Variables as NAME=VALUE."""
    return {name: value for name, _, value in (word.partition("=") for word in text.split())}


SHELL = of("HOME=/root PATH=/usr/bin:/bin LANG=C.UTF-8 PWD=/job SHLVL=1")

SRUN = SHELL | of(
    "SLURMD_NODENAME=gpu-c07 SLURM_CLUSTER_NAME=blue SLURM_CPUS_ON_NODE=64 "
    "SLURM_CPU_BIND=quiet,mask_cpu:0x1 SLURM_GTIDS=2 SLURM_JOBID=418213 "
    "SLURM_JOB_CPUS_PER_NODE=64(x4) SLURM_JOB_ID=418213 SLURM_JOB_NAME=train "
    "SLURM_JOB_NODELIST=gpu-c[03-04,07],gpu-d1 SLURM_JOB_NUM_NODES=4 SLURM_JOB_PARTITION=gpu "
    "SLURM_LAUNCH_NODE_IPADDR=10.3.0.3 SLURM_LOCALID=0 SLURM_MPI_TYPE=pmix SLURM_NNODES=4 "
    "SLURM_NODEID=2 SLURM_NODELIST=gpu-c[03-04,07],gpu-d1 SLURM_NPROCS=4 SLURM_NTASKS=4 "
    "SLURM_PROCID=2 SLURM_SRUN_COMM_HOST=10.3.0.3 SLURM_STEPID=0 SLURM_STEP_ID=0 "
    "SLURM_STEP_NODELIST=gpu-c[03-04,07],gpu-d1 SLURM_STEP_NUM_NODES=4 SLURM_STEP_NUM_TASKS=4 "
    "SLURM_STEP_TASKS_PER_NODE=1(x4) SLURM_SUBMIT_HOST=login1 SLURM_TASKS_PER_NODE=1(x4) "
    "SLURM_TOPOLOGY_ADDR=gpu-c07 PMIX_RANK=2"
)
"""Node 2 of 4, inside srun."""

SBATCH = {
    name: value
    for name, value in SRUN.items()
    if not name.startswith(("SLURM_STEP", "SLURM_SRUN", "SLURM_LAUNCH", "PMIX"))
} | of("SLURM_NODEID=0 SLURM_PROCID=0 SLURM_GTIDS=0 SLURMD_NODENAME=gpu-c03")
"""The batch script of the same job: it runs on the first node alone."""

SALLOC = SRUN | of(
    "SLURM_STEP_ID=4294967290 SLURM_STEPID=4294967290 SLURM_STEP_NODELIST=gpu-c03 "
    "SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURMD_NODENAME=gpu-c03"
)
"""The shell of salloc, a step of Slurm's own."""

OPEN_MPI = SHELL | of(
    "OMPI_ARGV=launch OMPI_COMMAND=rdzv OMPI_COMM_WORLD_LOCAL_RANK=0 "
    "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_NODE_RANK=0 OMPI_COMM_WORLD_RANK=1 "
    "OMPI_COMM_WORLD_SIZE=4 OMPI_MCA_ess_base_jobid=1706229761 "
    "OMPI_MCA_orte_hnp_uri=1706229760.0;tcp://10.3.0.3:41551 OMPI_UNIVERSE_SIZE=4 "
    "PMIX_NAMESPACE=1706229761 PMIX_RANK=1"
)
"""Rank 1 of `mpirun -np 4 --map-by ppr:1:node`."""

MPIRUN_IN_SLURM = (
    SRUN
    | of(
        "SLURM_NODEID=0 SLURM_PROCID=0 SLURMD_NODENAME=gpu-c04 "
        "SLURM_STEP_NODELIST=gpu-c[04,07],gpu-d1 SLURM_STEP_NUM_NODES=3 "
        "SLURM_STEP_TASKS_PER_NODE=1(x3)"
    )
    | OPEN_MPI
)
"""The same inside a Slurm job: the step is that of mpirun's daemons, without the first node."""

HYDRA = SHELL | of(
    "HYDI_CONTROL_FD=10 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0 PMI_FD=9 PMI_RANK=3 PMI_SIZE=4"
)
"""Rank 3 of `mpiexec -np 4 -ppn 1` of MPICH or Intel MPI."""

KUBERNETES = SHELL | of(
    "KUBERNETES_PORT=tcp://10.96.0.1:443 KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1 "
    "KUBERNETES_SERVICE_HOST=10.96.0.1 KUBERNETES_SERVICE_PORT=443"
)

INDEXED_JOB = KUBERNETES | {"HOSTNAME": "train-2", "JOB_COMPLETION_INDEX": "2"}
"""Pod 2 of an Indexed Job."""

INDEXED_POD = Host(
    "train-2",
    "# Kubernetes-managed hosts file.\n"
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-mcastprefix\n"
    "10.244.1.17\ttrain-2.workers.team.svc.cluster.local\ttrain-2\n",
)
"""The same pod: its template names the headless service `workers`."""

JOBSET = KUBERNETES | of(
    "HOSTNAME=llm-workers-1-0 JOB_COMPLETION_INDEX=0 JOBSET_NAME=llm "
    "REPLICATED_JOB_NAME=workers JOBSET_JOB_INDEX=1 JOBSET_REPLICAS=2"
)
"""The first pod of the second of 2 jobs."""

PYTORCHJOB = KUBERNETES | of(
    "HOSTNAME=mnist-worker-0 MASTER_ADDR=mnist-master-0 MASTER_PORT=23456 PYTHONUNBUFFERED=0 "
    "RANK=1 WORLD_SIZE=3"
)
"""The first worker of an older PyTorchJob: RANK and WORLD_SIZE count pods."""

NEWER_PYTORCHJOB = PYTORCHJOB | of(
    "PET_MASTER_ADDR=mnist-master-0 PET_MASTER_PORT=23456 PET_NNODES=3 PET_NODE_RANK=1 "
    "PET_NPROC_PER_NODE=8 WORLD_SIZE=24"
)
"""The same of a newer one: WORLD_SIZE counts processes."""

TRAINJOB = KUBERNETES | of(
    "HOSTNAME=bert-node-0-3 JOB_COMPLETION_INDEX=3 PET_MASTER_ADDR=bert-node-0-0.bert "
    "PET_MASTER_PORT=29400 PET_NNODES=4 PET_NODE_RANK=3 PET_NPROC_PER_NODE=auto"
)
"""Node 3 of a TrainJob of Kubeflow Trainer 2."""

VOLCANO = KUBERNETES | of(
    "HOSTNAME=lm-worker-1 VC_TASK_INDEX=1 "
    "VC_WORKER_HOSTS=lm-worker-0.lm,lm-worker-1.lm,lm-worker-2.lm VC_WORKER_NUM=3 "
    "VK_TASK_INDEX=1"
)
"""Pod 1 of a Volcano job of one task, with the plugins env and svc."""

VOLCANO_TASKS = VOLCANO | {"VC_MASTER_HOSTS": "lm-master-0.lm", "VC_MASTER_NUM": "1"}
"""Pod 1 of its second task."""

VOLCANO_PYTORCH = VOLCANO_TASKS | of(
    "MASTER_ADDR=lm-master-0.lm MASTER_PORT=23456 RANK=2 WORLD_SIZE=4"
)
"""The same with the plugin pytorch."""

SAGEMAKER = (
    SHELL
    | of(
        "AWS_REGION=us-east-1 SM_CURRENT_HOST=algo-2 SM_MODEL_DIR=/opt/ml/model "
        "SM_NETWORK_INTERFACE_NAME=eth0 SM_NUM_GPUS=8 "
        "TRAINING_JOB_ARN=arn:aws:sagemaker:us-east-1:1:training-job/lm-2026-01-01 "
        "TRAINING_JOB_NAME=lm-2026-01-01"
    )
    | {"SM_HOSTS": '["algo-1","algo-2","algo-10"]'}
)
"""algo-2 of three hosts: the last one by name."""

SKYPILOT = (
    SHELL
    | of(
        "SKYPILOT_NODE_RANK=1 SKYPILOT_NUM_GPUS_PER_NODE=8 SKYPILOT_NUM_NODES=2 "
        "SKYPILOT_TASK_ID=sky-managed-2026-01-06-21-18-31-563597_my-long-training-job_1-0"
    )
    | {
        "SKYPILOT_CLUSTER_INFO": '{"cluster_name": "c", "cloud": "AWS"}',
        "SKYPILOT_NODE_IPS": "10.0.0.5\n10.0.0.9\n",
    }
)
"""Node 1 of 2."""

DSTACK = (
    SHELL
    | of(
        "DSTACK_GPUS_NUM=24 DSTACK_GPUS_PER_NODE=8 DSTACK_MASTER_NODE_IP=10.0.0.47 "
        "DSTACK_NODES_NUM=3 DSTACK_NODE_RANK=1 DSTACK_REPO_ID=local DSTACK_RUN_NAME=calm-otter-1"
    )
    | {"DSTACK_NODES_IPS": "10.0.0.47\n10.0.0.48\n10.0.0.49"}
)
"""Node 1 of 3."""

AWS_BATCH = SHELL | of(
    "AWS_BATCH_CE_NAME=gpu AWS_BATCH_JOB_ATTEMPT=1 AWS_BATCH_JOB_ID=8a46cbbf-2e1f#2 "
    "AWS_BATCH_JOB_MAIN_NODE_INDEX=0 AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.4 "
    "AWS_BATCH_JOB_NODE_INDEX=2 AWS_BATCH_JOB_NUM_NODES=4 AWS_BATCH_JQ_NAME=queue"
)
"""Node 2 of a multi-node parallel job."""

ELASTIC_PYTORCHJOB = KUBERNETES | of(
    "HOSTNAME=lm-worker-1 PET_MAX_RESTARTS=3 PET_NNODES=2:4 PET_NPROC_PER_NODE=8 "
    "PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=lm-worker-0:23456 PYTHONUNBUFFERED=0"
)
"""A worker of an elastic PyTorchJob without a master: no rank."""

TORCHX = SHELL | of("TORCHX_JOB_ID=local_docker://torchx/lm-x1 TORCHX_RANK0_HOST=lm-x1-lm-0")
"""A replica of TorchX above the first one."""

AZUREML = SHELL | of(
    "AZUREML_ARM_SUBSCRIPTION=0000 AZUREML_EXPERIMENT_ID=e1 AZUREML_NODE_COUNT=3 "
    "AZUREML_RUN_ID=keen_plum_4f5k AZ_BATCHAI_JOB_MASTER_NODE_IP=10.0.0.4 "
    "AZ_BATCH_HOST_LIST=10.0.0.4,10.0.0.5,10.0.0.6 AZ_BATCH_MASTER_NODE=10.0.0.4:6000"
)
"""What every node of an Azure ML job of 3 nodes has."""

AZUREML_PYTORCH = AZUREML | of(
    "LOCAL_RANK=0 MASTER_ADDR=10.0.0.4 MASTER_PORT=6105 NODE_RANK=2 RANK=2 WORLD_SIZE=3"
)
"""Node 2, distribution pytorch with one process on each node."""

AZUREML_MPI = (
    AZUREML
    | {name: value for name, value in OPEN_MPI.items() if name.startswith("OMPI_COMM")}
    | {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}
)
"""Node 2, distribution mpi with one process on each node."""

TENSORFLOW = SHELL | {
    "TF_CONFIG": '{"cluster": {"chief": ["10.0.0.4:2222"], "worker": ["10.0.0.5:2222", '
    '"10.0.0.6:2222"]}, "task": {"type": "worker", "index": 1}, "environment": "cloud"}'
}
"""The second worker beside a chief."""
