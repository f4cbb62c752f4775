"""What a platform's environment says of this node: one reader for each platform. Pure.

A platform that starts n equal containers tells each of them, in variables of its own, which one it
is. `PLATFORMS` is the order in which they are asked; docs/symmetric.md says why it is this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from launcher.plan.host_ranges import expand
from launcher.symmetric.claim import (
    Claim,
    Host,
    Variables,
    as_run_id,
    contradiction,
    host_of,
    wrong,
)
from rendezvous.wire.errors import UsageError
from worker.contracts.advice import Advice, Line, WrongCommand

ONE_TASK = "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 "
"""Starts what follows once on each node of a job, whatever number of tasks the job has."""
_ONCE = "rdzv is started once on each node and starts the node's processes itself"
# Slurm's own steps: the batch script, the interactive shell of salloc, what is outside of all.
_FIRST_OWN_STEP = 0xFFFF_FF00


def _slurm(env: Variables) -> None:
    """Inside srun. Where Open MPI has started us, the step is that of its daemons, not ours."""
    if env.text("OMPI_COMM_WORLD_SIZE"):
        return
    step = env.number("SLURM_STEP_ID", _FIRST_OWN_STEP)
    if step >= _FIRST_OWN_STEP:
        env.advise(
            node_rank="this is a Slurm job, but not inside srun, where only one node runs; start "
            f"all of them: {ONE_TASK}rdzv launch ..."
        )
        return
    count = env.first("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    listed = env.first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    env.take_number("node_rank", "SLURM_NODEID")
    env.take_number("nnodes", count)
    job = f"slurm-{env.text('SLURM_JOB_ID')}-{step}"
    env.take("rdzv_id", as_run_id(job), "SLURM_JOB_ID", "SLURM_STEP_ID")
    _check_slurm_tasks(env)
    nodes = _slurm_nodes(env, listed) if env.text(listed) else []
    env.take("master_addr", nodes[0] if nodes else "", listed, note="its first node")
    _check_slurm_nodes(env, nodes, listed, count)


def restarts_of_job(environ: Mapping[str, str]) -> int:
    """How often Slurm has requeued the job that this process is in; 0 where nobody says so."""
    text = environ.get("SLURM_RESTART_COUNT", "") if environ.get("SLURM_JOB_ID") else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _slurm_nodes(env: Variables, name: str) -> list[str]:
    try:
        return expand(env.text(name))
    except ValueError as exc:
        raise wrong(name, env.text(name), f"not a list of nodes ({exc})") from exc


def _check_slurm_tasks(env: Variables) -> None:
    tasks = env.text("SLURM_STEP_TASKS_PER_NODE")  # 2(x3),1
    counts = re.sub(r"\(x[0-9]+\)", "", tasks).split(",")
    if not env.number("SLURM_LOCALID") and not set(counts) - {"", "1"}:
        return
    raise WrongCommand(
        f"srun starts several tasks on a node (SLURM_STEP_TASKS_PER_NODE is {tasks or '?'}): "
        f"{_ONCE}",
        Advice(Line(before=ONE_TASK)),
        note="; 'srun --ntasks-per-node=1' alone keeps the tasks of the job. Where the job has "
        "--gpus-per-task, add --gpus-per-node=N, or the step has one task's GPUs",
    )


def _check_slurm_nodes(env: Variables, nodes: list[str], listed: str, count: str) -> None:
    number, known = env.claim.node, env.claim.nodes
    if not nodes or number is None or known is None:
        return
    if len(nodes) != known:
        raise contradiction(
            f"{listed} is {env.text(listed)}, which is {len(nodes)} nodes, and {count} is {known}"
        )
    own = env.text("SLURMD_NODENAME") or env.host.hostname.partition(".")[0]
    known_here = own in nodes or env.text("SLURMD_NODENAME")
    if known_here and (number >= known or nodes[number] != own):
        raise contradiction(
            f"SLURM_NODEID is {number}, and this node, {own}, is not node {number} of {listed} "
            f"{env.text(listed)}"
        )


def _torchrun_variables(env: Variables) -> None:
    """Kubeflow Trainer, newer PyTorchJobs, and others that give torchrun its flags so."""
    env.take_number("node_rank", "PET_NODE_RANK")
    size = env.text("PET_NNODES")
    if size and not re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9})?", size):
        raise wrong("PET_NNODES", size, "not a number of nodes")
    env.take("nnodes", size, "PET_NNODES")
    env.take("rdzv_id", as_run_id(env.text("PET_RDZV_ID")), "PET_RDZV_ID")
    env.take("master_addr", host_of(env.text("PET_MASTER_ADDR")), "PET_MASTER_ADDR")


def _elastic_torchrun(env: Variables) -> None:
    """An elastic PyTorchJob, and what else leaves the numbers to torchrun's own rendezvous."""
    if any(map(env.text, ("PET_NODE_RANK", "RANK"))) or env.text("PET_RDZV_BACKEND") == "static":
        return
    _torchrun_variables(env)
    endpoint = host_of(env.text("PET_RDZV_ENDPOINT"))
    env.take("master_addr", endpoint, "PET_RDZV_ENDPOINT", note="its host")
    _leave_to_plugin(env, "PET_RDZV_ENDPOINT", "torchrun --rdzv-backend=rdzv --rdzv-id=JOB ...")


def _torchx(env: Variables) -> None:
    """A replica of TorchX: it hears of the first one alone, which hears `localhost`."""
    env.take("master_addr", host_of(env.text("TORCHX_RANK0_HOST")), "TORCHX_RANK0_HOST")
    _leave_to_plugin(
        env,
        "TORCHX_RANK0_HOST",
        "torchrun --rdzv-backend=rdzv --rdzv-endpoint=$TORCHX_RANK0_HOST:29600 --rdzv-id=JOB ...",
    )


def _leave_to_plugin(env: Variables, name: str, command: str) -> None:
    env.claim.numbered = False
    env.advise(
        node_rank=f"the platform ({name}) gives a node no number and leaves it to torchrun: start "
        f"torchrun itself, with rdzv as its rendezvous: {command} ('rdzv docs torchrun')"
    )


def _jobset(env: Variables) -> None:
    """Jobs times pods; what a pod is told of its job comes by the downward API."""
    jobset, name = env.text("JOBSET_NAME"), env.text("REPLICATED_JOB_NAME")
    downward = (
        "a pod of a JobSet needs JOBSET_NAME, REPLICATED_JOB_NAME, JOBSET_JOB_INDEX and "
        "JOBSET_REPLICAS from its annotations; 'rdzv docs symmetric' has the lines"
    )
    env.advise(node_rank=downward, master_addr=downward, rdzv_id=downward)
    env.advise(nnodes=_completions("a JobSet", "jobs times pods"))
    if name:
        sources = ("JOBSET_NAME", "REPLICATED_JOB_NAME")
        env.take("master_addr", f"{jobset}-{name}-0-0.{jobset}", *sources)
        env.take("rdzv_id", as_run_id(f"{jobset}-{name}"), *sources)
    jobs = env.number("JOBSET_REPLICAS")
    if not env.text("JOBSET_JOB_INDEX") or not jobs or not env.nodes:
        return
    pods, rest = divmod(env.nodes, jobs)
    pod = env.number("JOB_COMPLETION_INDEX")
    if rest or pod >= pods:
        raise contradiction(
            f"{env.nodes} nodes in {jobs} jobs (JOBSET_REPLICAS) do not divide into jobs with a "
            f"pod of JOB_COMPLETION_INDEX {pod}"
        )
    number = env.number("JOBSET_JOB_INDEX") * pods + pod
    env.take("node_rank", str(number), "JOBSET_JOB_INDEX", "JOB_COMPLETION_INDEX")


def _completions(kind: str, what: str) -> str:
    return f"no variable gives the number of pods of {kind}: set NUM_NODES, {what}, in its env"


def _azureml(env: Variables) -> None:
    env.take("rdzv_id", as_run_id(env.text("AZUREML_RUN_ID")), "AZUREML_RUN_ID")
    env.take_number("node_rank", "NODE_RANK", "OMPI_COMM_WORLD_RANK", "AZ_BATCHAI_TASK_INDEX")
    env.take_number("nnodes", "AZUREML_NODE_COUNT", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")
    nodes, size = env.number("AZUREML_NODE_COUNT"), env.first("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")
    counts_processes = env.text("NODE_RANK") and env.number("RANK") != env.number("NODE_RANK")
    several = env.number("LOCAL_RANK") or env.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1) > 1
    # The first process of the first node is seen by the size alone: all its ranks are 0.
    if several or (env.text("RANK") and counts_processes) or 0 < nodes < env.number(size):
        of_all = f": {size} is {env.text(size)}, on {nodes} nodes" if nodes else ""
        raise UsageError(
            f"Azure ML starts several processes on a node (RANK, LOCAL_RANK){of_all}; {_ONCE}",
            hint="set process_count_per_instance: 1 in the job's distribution",
        )
    master = env.first("AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_MPI_MASTER_NODE", "MASTER_ADDR")
    env.take("master_addr", host_of(env.text(master)), master)
    env.advise(
        node_rank="Azure ML sets a node's number only in a job with a distribution: give the job "
        "'distribution: {type: pytorch, process_count_per_instance: 1}'"
    )


def _volcano(env: Variables) -> None:
    index = env.first("VC_TASK_INDEX", "VK_TASK_INDEX")
    tasks = env.names("VC_(.+)_HOSTS")
    if not env.text(index) or (len(tasks) > 1 and env.text("RANK") and env.text("WORLD_SIZE")):
        return  # of several tasks its plugin for PyTorch tells RANK and WORLD_SIZE
    if len(tasks) > 1:
        raise contradiction(
            f"{index} counts the pods of each task separately, and this job has the tasks "
            + ", ".join(task[1].lower() for task in tasks)
        )
    plugin = "Volcano sets it with its plugins env and svc: add 'svc: []' to the job's plugins"
    env.advise(nnodes=plugin, master_addr=plugin, rdzv_id=plugin)
    env.take_number("node_rank", index)
    if tasks:
        name = tasks[0][0]
        hosts = env.text(name).split(",")
        env.take("nnodes", str(len(hosts)), name)
        env.take("master_addr", hosts[0], name, note="its first host")
        env.take("rdzv_id", as_run_id(hosts[0].partition(".")[2]), name)


def _sagemaker(env: Variables) -> None:
    """Hosts in the order of their names as text: algo-10 comes before algo-2."""
    current, hosts = env.text("SM_CURRENT_HOST"), env.json("SM_HOSTS")
    if not isinstance(hosts, list) or not all(isinstance(h, str) and h for h in hosts):
        raise wrong("SM_HOSTS", env.text("SM_HOSTS"), "not a list of host names")
    if hosts.count(current) != 1 or len(set(hosts)) < len(hosts):
        raise contradiction(
            f"SM_CURRENT_HOST {current} is not in SM_HOSTS exactly once ({', '.join(hosts)})"
        )
    hosts = sorted(hosts)
    env.take("node_rank", str(hosts.index(current)), "SM_CURRENT_HOST", "SM_HOSTS")
    env.take("nnodes", str(len(hosts)), "SM_HOSTS")
    env.take("master_addr", hosts[0], "SM_HOSTS", note="its first host")
    env.take("rdzv_id", as_run_id(env.text("TRAINING_JOB_NAME")), "TRAINING_JOB_NAME")


def _listed(env: Variables, number: str, size: str, run: str, listed: str) -> None:
    """SkyPilot and dstack list the addresses of all nodes, in the order of their numbers."""
    addresses = env.text(listed).split()
    env.take_number("node_rank", number)
    env.take_number("nnodes", size)
    env.take("rdzv_id", as_run_id(env.text(run)), run)
    if addresses:
        env.take("master_addr", addresses[0], listed, note="its first address")
    if addresses and len(addresses) != (env.claim.nodes or len(addresses)):
        raise contradiction(
            f"{listed} holds {len(addresses)} addresses, and {size} is {env.claim.nodes}"
        )


def _dstack(env: Variables) -> None:
    _listed(env, *_DSTACK)
    env.take("master_addr", env.text("DSTACK_MASTER_NODE_IP"), "DSTACK_MASTER_NODE_IP")


def _aws_batch(env: Variables) -> None:
    """A multi-node parallel job. The main node is not told its own address; children have a `#` and
    their index behind the job's id."""
    env.take_number("node_rank", "AWS_BATCH_JOB_NODE_INDEX")
    env.take_number("nnodes", "AWS_BATCH_JOB_NUM_NODES")
    job = env.text("AWS_BATCH_JOB_ID").partition("#")[0]
    env.take("rdzv_id", as_run_id(job), "AWS_BATCH_JOB_ID")
    if env.number("AWS_BATCH_JOB_MAIN_NODE_INDEX"):
        raise contradiction(
            "AWS_BATCH_JOB_MAIN_NODE_INDEX is "
            f"{env.text('AWS_BATCH_JOB_MAIN_NODE_INDEX')}, but node 0 must be the main node: AWS "
            "Batch gives the address of the main node alone"
        )
    address = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
    env.take("master_addr", env.text(address), address)
    if env.claim.node == 0 and not env.text(address):
        env.take("master_addr", env.host.hostname, "this node's hostname")


def _indexed_job(env: Variables) -> None:
    """A pod of a Kubernetes Job with completionMode Indexed: its host name is JOB-INDEX."""
    index = env.text("JOB_COMPLETION_INDEX")
    if env.text("JOBSET_NAME"):
        return  # in a JobSet it counts the pods of each job by themselves
    env.take_number("node_rank", "JOB_COMPLETION_INDEX")
    job, dash, end = env.host.hostname.rpartition("-")
    domain = _own_domain(env.host) if dash and end == index else ""
    source = "the pod's name in /etc/hosts"
    env.take("master_addr", domain and f"{job}-0.{domain}", source)
    env.take("rdzv_id", as_run_id(job) if domain else "", source)
    service = (
        "the other pods can resolve the name of a pod of an Indexed Job if its template names a "
        "headless service as 'subdomain'; or set MASTER_ADDR (JOB-0.SUBDOMAIN) and RDZV_ID"
    )
    env.advise(nnodes=_completions("an Indexed Job", "its completions"))
    env.advise(master_addr=service, rdzv_id=service)


def _own_domain(host: Host) -> str:
    """What follows a pod's hostname in its full name, which the kubelet writes to /etc/hosts."""
    for line in host.hosts.splitlines():
        for name in line.partition("#")[0].split()[1:]:
            if name.startswith(f"{host.hostname}."):
                return name.removeprefix(f"{host.hostname}.")
    return ""


def _mpi(env: Variables, number: str, size: str, local: str) -> None:
    env.take_number("node_rank", number)
    env.take_number("nnodes", size)
    env.advise(
        master_addr="mpirun does not always run on node 0's machine: give all nodes the address "
        "of node 0 (mpirun -x MASTER_ADDR=..., mpiexec -genv MASTER_ADDR ...)",
        rdzv_id="name the run for all nodes (mpirun -x RDZV_ID=..., mpiexec -genv RDZV_ID ...)",
    )
    if env.number(local, 1) > 1:
        raise UsageError(
            f"MPI starts {env.text(local)} processes on this node ({local}): {_ONCE}",
            hint="one process a node: mpirun --map-by ppr:1:node, or mpiexec -ppn 1",
        )


def _tf_config(env: Variables) -> None:
    """The chief is node 0, then come the workers; others take no part in a training."""
    config = env.json("TF_CONFIG")
    try:
        cluster = {kind: list(hosts) for kind, hosts in config.get("cluster", {}).items() if hosts}
        kind, index = config["task"]["type"], int(config["task"]["index"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise wrong("TF_CONFIG", env.text("TF_CONFIG"), "not of TensorFlow's form") from None
    if not cluster:
        return
    order = [role for role in ("chief", "master", "worker") if role in cluster]
    if len(order) < len(cluster) or not 0 <= index < len(cluster.get(kind, [])):
        raise contradiction(
            f"TF_CONFIG has the tasks {', '.join(cluster)}, and this is {kind} {index}: ranks are "
            "known for a chief and workers only"
        )
    before = sum(len(cluster[role]) for role in order[: order.index(kind)])
    env.take("node_rank", str(before + index), "TF_CONFIG")
    env.take("nnodes", str(sum(map(len, cluster.values()))), "TF_CONFIG")
    env.take("master_addr", host_of(str(cluster[order[0]][0])), "TF_CONFIG")


def _plain(env: Variables) -> None:
    """PyTorch's own names, where they count nodes: one process on each."""
    beside, local = env.text("NODE_RANK"), env.text("LOCAL_RANK")
    is_later = local.isdigit() and int(local) > 0
    if env.text("PET_NODE_RANK") or (beside and beside != env.text("RANK") and not is_later):
        return  # they count processes
    env.take_number("node_rank", "RANK")
    env.take_number("nnodes", "WORLD_SIZE")
    env.take("master_addr", env.text("MASTER_ADDR"), "MASTER_ADDR")
    several = env.number("LOCAL_RANK") or env.number("LOCAL_WORLD_SIZE", 1) > 1
    too_many = local and 0 < (env.nodes or 0) < env.number("WORLD_SIZE")
    if several or too_many or env.text("TORCHELASTIC_RUN_ID"):
        if is_later and beside:
            env.take_number("node_rank", "NODE_RANK")
        raise UsageError(
            f"RANK {env.text('RANK')} of WORLD_SIZE {env.text('WORLD_SIZE')} counts processes "
            f"(LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RUN_ID): {_ONCE}",
            hint="start rdzv once on each node; torchrun is started by rdzv",
        )


_SKYPILOT = ("SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SKYPILOT_TASK_ID", "SKYPILOT_NODE_IPS")
_DSTACK = ("DSTACK_NODE_RANK", "DSTACK_NODES_NUM", "DSTACK_RUN_NAME", "DSTACK_NODES_IPS")
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
_HYDRA = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS")

PLATFORMS: tuple[tuple[str, tuple[str, ...], Callable[[Variables], None]], ...] = (
    ("Slurm", ("SLURM_JOB_ID",), _slurm),
    ("Kubeflow", ("PET_NODE_RANK",), _torchrun_variables),
    ("elastic PyTorchJob", ("PET_RDZV_ENDPOINT",), _elastic_torchrun),
    ("JobSet", ("JOBSET_NAME", "JOB_COMPLETION_INDEX"), _jobset),
    ("Azure ML", ("AZUREML_RUN_ID",), _azureml),
    ("Volcano", (), _volcano),
    ("SageMaker", ("SM_CURRENT_HOST", "SM_HOSTS"), _sagemaker),
    ("SkyPilot", _SKYPILOT[:1], lambda env: _listed(env, *_SKYPILOT)),
    ("dstack", _DSTACK[:1], _dstack),
    ("AWS Batch", ("AWS_BATCH_JOB_NODE_INDEX",), _aws_batch),
    ("Kubernetes Indexed Job", ("JOB_COMPLETION_INDEX",), _indexed_job),
    ("Open MPI", _OPEN_MPI[:1], lambda env: _mpi(env, *_OPEN_MPI)),
    ("MPICH or Intel MPI", _HYDRA[:1], lambda env: _mpi(env, *_HYDRA)),
    ("TF_CONFIG", ("TF_CONFIG",), _tf_config),
    ("RANK and WORLD_SIZE", ("RANK", "WORLD_SIZE"), _plain),
    ("TorchX", ("TORCHX_RANK0_HOST",), _torchx),
)
"""Each with the variables by which it is known, and its reader, which may still say nothing."""


def claims(environ: Mapping[str, str], host: Host, nodes: int | None) -> list[Claim]:
    """What each platform that knows this environment says of the node, in their order.

    Args:
        environ: The environment.
        host: What the node knows of itself beside it.
        nodes: The number of nodes, where it has been given.
    """
    found = []
    for name, known_by, read in PLATFORMS:
        claim = Claim(name)
        env = Variables(environ, host, claim, nodes)
        try:
            if all(map(env.text, known_by)):
                read(env)
        except UsageError as exc:
            claim.problem = exc
        if claim.values or claim.advice or claim.problem:
            found.append(claim)
    return found
