"""What is adopted from a platform's environment: whole environments, odd ones, two at once."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import launcher.symmetric.platforms
from launcher.plan.host_ranges import expand
from launcher.settings import LaunchSettings
from launcher.symmetric.adopt import Adopted, adopt, one_of_several
from launcher.symmetric.claim import Host, Value, as_run_id, host_of
from launcher.symmetric.platforms import PLATFORMS, claims, restarts_of_job
from launcher.symmetric.start import check_alone, check_values
from rendezvous.wire.errors import UsageError
from tests.support import environments as env
from tests.support.nightly import examples

DOCS = Path(__file__).parent.parent.parent / "docs" / "symmetric.md"
FOUR, FIVE = ({"nnodes": Value(text, "NUM_NODES")} for text in "45")
RUN = {"rdzv_id": Value("r", "RDZV_ID")}
EVERYTHING = {name: Value("1", name) for name in ("nnodes", "node_rank", "master_addr")}
ALONE = {"node_rank": Value("0", "NODE_RANK"), "nnodes": Value("2:4", "--nnodes")}
AZURE_0 = env.AZUREML_PYTORCH | {"NODE_RANK": "0", "RANK": "0"}
AZURE_MPI_0 = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "AZUREML_NODE_COUNT": "1"}
OURS = "# >>> rdzv\n10.244.1.17 train-2 node-2\n::ffff:10.244.1.17 train-2\n# <<< rdzv\n"
POD = Host("train-2", OURS + env.INDEXED_POD.hosts)
STEP = {
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "gpu-c[04,07]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
HET = {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_PACK_GROUP_0": "gpu-c[03-04]"}
SRUN, INDEXED = "2 4 gpu-c03 slurm-418213-0", "2 4 train-0.workers.team.svc.cluster.local train"
SLURM_SAYS = "the node's number is 0 (NODE_RANK), and Slurm says 2 (SLURM_NODEID)"
TF_SAYS = "the number of nodes is 4 (SLURM_STEP_NUM_NODES), and TF_CONFIG says 3 (TF_CONFIG)"
POD_SAYS = (
    "the node's number is 3 (PET_NODE_RANK), and Kubernetes Indexed Job says 0 "
    "(JOB_COMPLETION_INDEX)"
)
BOTH = env.TRAINJOB | {"JOB_COMPLETION_INDEX": "0"}


def without(environ: dict[str, str], *beginnings: str) -> dict[str, str]:
    return {name: text for name, text in environ.items() if not name.startswith(beginnings)}


def tensorflow(cluster: object, kind: str = "worker", index: object = 0) -> dict[str, str]:
    task = {"type": kind, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def adopted(
    environ: dict[str, str], given: Mapping[str, Value] | None = None, host: Host = env.NOBODY
) -> Adopted:
    return adopt(environ, given or {}, host)


def node(found: Adopted) -> str:
    """Node, size, node 0's place and run id; '-' for what nothing tells."""
    names = ("node_rank", "nnodes", "master_addr", "rdzv_id")
    return " ".join(found.values[n].text if n in found.values else "-" for n in names)


CHIEF = {"worker": ["w0:1", "w1:1"], "chief": ["c0:1"]}
OLDER = without(env.SRUN, "SLURM_STEP_N", "SLURM_STEP_T")
ADOPTED: list[tuple[dict[str, str], str, str]] = [
    (env.SRUN, "Slurm", SRUN),
    (env.SRUN | STEP, "Slurm", "1 2 gpu-c04 slurm-418213-3"),
    (env.SRUN | HET, "Slurm", SRUN),
    (OLDER, "Slurm", SRUN),
    (without(OLDER, "SLURM_JOB_NODELIST", "SLURM_NODELIST"), "Slurm", "2 4 - slurm-418213-0"),
    (env.SRUN | {"TF_CONFIG": "{"} | env.SAGEMAKER | {"SM_HOSTS": "["}, "Slurm", SRUN),
    (env.SBATCH, "", "- - - -"),
    (env.SALLOC, "", "- - - -"),
    (env.MPIRUN_IN_SLURM, "Open MPI", "1 4 - -"),
    (env.OPEN_MPI, "Open MPI", "1 4 - -"),
    (env.HYDRA, "MPICH or Intel MPI", "3 4 - -"),
    (env.PYTORCHJOB, "RANK and WORLD_SIZE", "1 3 mnist-master-0 -"),
    (env.NEWER_PYTORCHJOB, "Kubeflow", "1 3 mnist-master-0 -"),
    (
        *(env.NEWER_PYTORCHJOB | {"PET_NNODES": "2:3", "PET_RDZV_ID": "mnist"}, "Kubeflow"),
        "1 2:3 mnist-master-0 mnist",
    ),
    (env.TRAINJOB, "Kubeflow", "3 4 bert-node-0-0.bert -"),
    (env.VOLCANO, "Volcano", "1 3 lm-worker-0.lm lm"),
    (env.VOLCANO | env.AZUREML, "Volcano", "1 3 lm-worker-0.lm lm"),  # Azure tells no rank here
    (env.VOLCANO_PYTORCH, "RANK and WORLD_SIZE", "2 4 lm-master-0.lm -"),
    (env.SAGEMAKER, "SageMaker", "2 3 algo-1 lm-2026-01-01"),
    (env.SAGEMAKER | {"SM_CURRENT_HOST": "algo-10"}, "SageMaker", "1 3 algo-1 lm-2026-01-01"),
    (env.SKYPILOT, "SkyPilot", f"1 2 10.0.0.5 {env.SKYPILOT['SKYPILOT_TASK_ID']}"),
    (env.DSTACK, "dstack", "1 3 10.0.0.47 calm-otter-1"),
    (without(env.DSTACK, "DSTACK_NODES_IPS"), "dstack", "1 3 10.0.0.47 calm-otter-1"),
    (without(env.DSTACK, "DSTACK_MASTER"), "dstack", "1 3 10.0.0.47 calm-otter-1"),
    (env.AWS_BATCH, "AWS Batch", "2 4 10.0.0.4 8a46cbbf-2e1f"),
    (env.PYTORCHJOB | env.ELASTIC_PYTORCHJOB, "RANK and WORLD_SIZE", "1 3 mnist-master-0 -"),
    (env.TRAINJOB | env.ELASTIC_PYTORCHJOB, "Kubeflow", "3 2:4 bert-node-0-0.bert -"),
    (env.PYTORCHJOB | env.TORCHX, "RANK and WORLD_SIZE", "1 3 mnist-master-0 -"),
    (env.AZUREML_PYTORCH, "Azure ML", "2 3 10.0.0.4 keen_plum_4f5k"),
    (env.AZUREML_MPI, "Azure ML", "2 3 10.0.0.4 keen_plum_4f5k"),
    (env.AZUREML | {"AZ_BATCHAI_TASK_INDEX": "1"}, "Azure ML", "1 3 10.0.0.4 keen_plum_4f5k"),
    (
        without(env.AZUREML_MPI | AZURE_MPI_0, "AZ_BATCH_MASTER")
        | {"AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.9"},
        *("Azure ML", "0 1 10.0.0.9 keen_plum_4f5k"),
    ),
    (env.TENSORFLOW, "TF_CONFIG", "2 3 10.0.0.4 -"),
    (tensorflow(CHIEF, "chief"), "TF_CONFIG", "0 3 c0 -"),
    (tensorflow(CHIEF), "TF_CONFIG", "1 3 c0 -"),
    (tensorflow({"worker": ["[fd00::1]:2", "b:2"]}, index="1"), "TF_CONFIG", "1 2 fd00::1 -"),
    (env.SHELL, "", "- - - -"),
    (env.KUBERNETES, "", "- - - -"),
    ({"RANK": "8", "WORLD_SIZE": "16", "NODE_RANK": "1"}, "", "- - - -"),
    (dict.fromkeys(env.SRUN | env.AZUREML_PYTORCH | env.VOLCANO, ""), "", "- - - -"),
    (dict.fromkeys(env.TENSORFLOW | env.JOBSET | env.TRAINJOB, " "), "", "- - - -"),
]


@pytest.mark.parametrize(("environ", "platform", "expected"), ADOPTED)
def test_a_platform_tells_a_node_which_one_it_is(
    environ: dict[str, str], platform: str, expected: str
) -> None:
    found = adopted(environ)
    assert (found.platform, node(found), found.notes) == (platform, expected, ())
    assert found.missing or found.check() is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("environ", "values", "host", "platform", "expected", "notes"),
    [
        (env.INDEXED_JOB, FOUR, env.INDEXED_POD, "Kubernetes Indexed Job", INDEXED, ()),
        (env.INDEXED_JOB, FOUR, POD, "Kubernetes Indexed Job", INDEXED, ()),
        (env.KUBERNETES, {}, env.INDEXED_POD, "", "- - - -", ()),
        (BOTH, {}, env.INDEXED_POD, "Kubeflow", "3 4 bert-node-0-0.bert -", (POD_SAYS,)),
        (env.SRUN, ALONE, env.NOBODY, "Slurm", "0 2:4 gpu-c03 slurm-418213-0", (SLURM_SAYS,)),
        (env.TENSORFLOW | env.SRUN, {}, env.NOBODY, "Slurm", SRUN, (TF_SAYS,)),
        (
            *(env.INDEXED_JOB | env.TENSORFLOW, {}, env.INDEXED_POD, "Kubernetes Indexed Job"),
            *(INDEXED.replace("4", "-"), ()),
        ),
    ],
)
def test_what_is_given_and_a_host_file_come_beside_it_and_a_difference_is_told(
    environ: dict[str, str],
    values: Mapping[str, Value],
    host: Host,
    platform: str,
    expected: str,
    notes: tuple[str, ...],
) -> None:
    found = adopted(environ, values, host)
    assert (found.platform, node(found), found.notes) == (platform, expected, notes)


def test_each_value_names_the_variables_that_it_comes_from() -> None:
    assert adopted(env.SRUN, {"rdzv_id": Value("mine", "--rdzv-id")}).values == {
        "nnodes": Value("4", "SLURM_STEP_NUM_NODES"),
        "node_rank": Value("2", "SLURM_NODEID"),
        "rdzv_id": Value("mine", "--rdzv-id"),
        "master_addr": Value("gpu-c03", "SLURM_STEP_NODELIST", note="its first node"),
    }


NEEDS = "a symmetric start (RDZV_TOKEN) needs "
SRUN_1 = "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 rdzv launch"
NO_LIST = "SLURM_STEP_NODELIST is 'gpu-c[03-': not a list of nodes (it cannot be read after char"
AZURE_1 = "process_count_per_instance: 1"
VOLCANO_NEEDS = f"{NEEDS}NUM_NODES (--nnodes) and RDZV_ID (--rdzv-id) and MASTER_ADDR"
HOSTS = "is not in SM_HOSTS exactly once"
JOBSET_NEEDS = "JOBSET_JOB_INDEX and JOBSET_REPLICAS from its annotations"
COUNTS = "RANK 1 of WORLD_SIZE 3 counts processes"
MPI = "MPI starts 2 processes on this node ({}): rdzv is started once on each node and starts"
TASKS = "VC_TASK_INDEX counts the pods of each task separately, and this job has the tasks "


@pytest.mark.parametrize(
    ("environ", "message", "hint"),
    [
        (env.SBATCH, f"{NEEDS}NUM_NODES (--nnodes) and NODE_RANK", f"start all of them: {SRUN_1}"),
        (env.SALLOC, f"{NEEDS}NUM_NODES (--nnodes) and NODE_RANK", "but not inside srun"),
        (env.SRUN | {"SLURM_STEP_TASKS_PER_NODE": "1(x2),8"}, "several tasks on a node", SRUN_1),
        (
            env.SRUN | {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": ""},
            *("srun starts several tasks on a node", SRUN_1),
        ),
        (
            env.SRUN | {"SLURM_STEP_NUM_NODES": "5"},
            "which is 4 nodes, and SLURM_STEP_NUM",
            "set NUM",
        ),
        (env.SRUN | {"SLURM_NODEID": "1"}, "this node, gpu-c07, is not node 1 of SLURM", "set NUM"),
        (env.SRUN | {"SLURM_NODEID": "4"}, "this node, gpu-c07, is not node 4 of SLURM", "set NUM"),
        (
            env.SRUN | {"SLURM_NODEID": "two"},
            ("SLURM_NODEID is 'two': not a whole number"),
            "platform",
        ),
        (env.SRUN | {"SLURM_STEP_NODELIST": "gpu-c[03-"}, NO_LIST, "the platform sets it"),
        (env.TRAINJOB | {"PET_NNODES": "many"}, "PET_NNODES is 'many': not a number of nodes", ""),
        (env.VOLCANO_TASKS, f"{TASKS}master, worker", ""),
        (env.KUBERNETES | {"VC_TASK_INDEX": "1"}, VOLCANO_NEEDS, "add 'svc: []' to the job's plug"),
        (env.SAGEMAKER | {"SM_HOSTS": '["algo-2","algo-2"]'}, f"{HOSTS} (algo-2, algo-2)", ""),
        (env.SAGEMAKER | {"SM_HOSTS": "algo-1,algo-2"}, "SM_HOSTS is 'algo-1,algo-2': no JSON", ""),
        (env.SAGEMAKER | {"SM_HOSTS": '["algo-1", 2]'}, "not a list of host names", ""),
        (env.SKYPILOT | {"SKYPILOT_NUM_NODES": "3"}, "NODE_IPS holds 2 addresses, and SKYPIL", ""),
        (env.DSTACK | {"DSTACK_NODES_NUM": "2"}, "DSTACK_NODES_IPS holds 3 addresses, and DST", ""),
        (
            env.AWS_BATCH | {"AWS_BATCH_JOB_MAIN_NODE_INDEX": "1"},
            *("AWS_BATCH_JOB_MAIN_NODE_INDEX is 1, but node 0 must be the main node", "set NUM"),
        ),
        (
            env.ELASTIC_PYTORCHJOB,
            *(f"{NEEDS}NODE_RANK (--node-rank) and RDZV_ID", "torchrun --rdzv-backend=rdzv --rdzv"),
        ),
        (
            env.TORCHX,
            *(f"{NEEDS}NUM_NODES (--nnodes) and NODE_RANK", "--rdzv-endpoint=$TORCHX_RANK0_HOST:2"),
        ),
        (env.PYTORCHJOB | {"LOCAL_RANK": "1", "NODE_RANK": "0"}, COUNTS, ""),
        (env.AZUREML, f"{NEEDS}NODE_RANK (--node-rank) on", f"{{type: pytorch, {AZURE_1}}}"),
        (env.AZUREML_PYTORCH | {"LOCAL_RANK": "1", "RANK": "17"}, "Azure ML starts sev", AZURE_1),
        (env.AZUREML_PYTORCH | {"RANK": "16"}, "Azure ML starts several processes on", AZURE_1),
        (env.AZUREML_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, "Azure ML starts sev", AZURE_1),
        (AZURE_0 | {"WORLD_SIZE": "6"}, "LOCAL_RANK): WORLD_SIZE is 6, on 3 nodes; rdzv", AZURE_1),
        (env.AZUREML_MPI | {"OMPI_COMM_WORLD_SIZE": "6"}, "SIZE is 6, on 3 nodes", AZURE_1),
        (
            env.OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            *(MPI.format("OMPI_COMM_WORLD_LOCAL_SIZE"), "ppr:1:node"),
        ),
        (env.HYDRA | {"MPI_LOCALNRANKS": "2"}, MPI.format("MPI_LOCALNRANKS"), "ppr:1:node"),
        (env.OPEN_MPI, f"{NEEDS}RDZV_ID (--rdzv-id) and MASTER_ADDR", "mpirun -x RDZV_ID="),
        (env.PYTORCHJOB | {"LOCAL_RANK": "1"}, COUNTS, ""),
        (env.PYTORCHJOB | {"LOCAL_WORLD_SIZE": "8"}, COUNTS, ""),
        (env.PYTORCHJOB | {"TORCHELASTIC_RUN_ID": "none"}, COUNTS, ""),
        (tensorflow({"worker": ["w:1"], "ps": ["p:1"]}), "has the tasks worker, ps", ""),
        (tensorflow({"worker": ["w:1"]}, index=1), "this is worker 1", ""),
        (tensorflow({"worker": ["w:1"]}, kind="evaluator"), "this is evaluator 0", ""),
        ({"TF_CONFIG": "{"}, "no JSON", ""),
        ({"TF_CONFIG": "[" * 100_000}, "no JSON", ""),
        ({"TF_CONFIG": '{"cluster": {"worker": 3}}'}, "not of TensorFlow's form", ""),
        ({"TF_CONFIG": '{"cluster": {"worker": ["w:1"]}}'}, "not of TensorFlow's form", ""),
        (env.SHELL, NEEDS, "every node needs RDZV_TOKEN, RDZV_ID, NUM_NODES and MASTER_ADDR"),
    ],
)
def test_what_cannot_be_is_refused_unless_nothing_of_it_is_needed(
    environ: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        adopted(environ).check()
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert adopted(environ, EVERYTHING).missing in ([], ["rdzv_id"])


def test_each_of_azures_processes_is_refused_whatever_it_is_given_beside() -> None:
    """Azure's own NODE_RANK and MASTER_ADDR come as a person's do, and NUM_NODES with them."""
    for rank, node_rank, local in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]:
        environ = env.AZUREML_PYTORCH | {
            "RANK": str(rank),
            "NODE_RANK": str(node_rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": "4",
            "AZUREML_NODE_COUNT": "2",
        }
        own = given_by(str(node_rank), "2", "10.0.0.4")
        for beside in ({}, own):
            with pytest.raises(UsageError, match=r"WORLD_SIZE is 4, on 2 nodes") as refused:
                adopted(environ, beside)
            assert refused.value.hint.startswith("set process_count_per_instance: 1")
        person = own | {"node_rank": Value(str(rank), "--node-rank")}
        assert adopted(environ, person).values["node_rank"].text == str(rank)


def test_the_main_node_of_aws_is_not_told_its_own_address() -> None:
    names = {"AWS_BATCH_JOB_NODE_INDEX": "0", "AWS_BATCH_JOB_ID": "8a46cbbf-2e1f#0"}
    main = without(env.AWS_BATCH, "AWS_BATCH_JOB_MAIN_NODE_PRIV") | names
    found = adopted(main, host=Host("ip-10-0-0-4"))
    assert node(found) == "0 4 ip-10-0-0-4 8a46cbbf-2e1f"
    check_values(found)


@pytest.mark.parametrize("environ", [env.ELASTIC_PYTORCHJOB, env.TORCHX])
def test_a_platform_without_ranks_still_says_that_there_are_others(
    environ: dict[str, str],
) -> None:
    """Without a group token each node would run the whole job."""
    told = one_of_several(environ, env.NOBODY, 2)
    assert told is not None
    assert (told.node, told.numbered) == (None, False)
    assert "with rdzv as its rendezvous" in told.advice["node_rank"]
    with pytest.raises(UsageError, match="this is one of several nodes") as refused:
        check_alone(LaunchSettings(nnodes="2"), environ, {"nnodes": "--nnodes"})
    assert "'rdzv docs torchrun'" in refused.value.hint
    check_alone(LaunchSettings(nnodes="1"), environ, {"nnodes": "--nnodes"})
    check_alone(LaunchSettings(scheduler="local"), environ, {"scheduler": "--scheduler"})


@pytest.mark.parametrize("name", ["node_rank", "nnodes", "master_addr"])
def test_a_platform_in_disorder_is_told_when_something_of_it_is_needed(name: str) -> None:
    environ = env.SRUN | {"SLURM_STEP_TASKS_PER_NODE": "8(x4)"}
    assert adopted(environ, EVERYTHING) == Adopted(EVERYTHING, frozenset(EVERYTHING))
    with pytest.raises(UsageError, match="several tasks"):
        adopted(environ, {key: value for key, value in EVERYTHING.items() if key != name})


@pytest.mark.parametrize(
    ("environ", "values", "host", "message", "hint"),
    [
        (
            *(env.INDEXED_JOB, {}, env.INDEXED_POD, f"{NEEDS}NUM_NODES (--nnodes) on this node"),
            "gives the number of pods of an Indexed Job: set NUM_NODES, its completions, in",
        ),
        (env.JOBSET, FIVE, env.NOBODY, "5 nodes in 2 jobs (JOBSET_REPLICAS) do not divide", ""),
        (without(env.JOBSET, "JOBSET_JOB"), FOUR, env.INDEXED_POD, NEEDS, JOBSET_NEEDS),
        (without(env.JOBSET, "JOBSET_REP"), FOUR, env.INDEXED_POD, NEEDS, JOBSET_NEEDS),
        (without(env.JOBSET, "REPLICATED"), FOUR, env.INDEXED_POD, NEEDS, JOBSET_NEEDS),
        (
            *(without(env.SRUN, "SLURMD_NODENAME"), {}, Host("gpu-d1.example.org")),
            *("this node, gpu-d1, is not node 2 of SLURM_STEP_NODELIST", "set NUM"),
        ),
    ],
)
def test_what_is_refused_on_a_host(
    environ: dict[str, str], values: Mapping[str, Value], host: Host, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        adopted(environ, values, host).check()
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert len(claims(environ, host, 4)) == 1  # by one platform, and by no other in its place


@pytest.mark.parametrize("hostname", ["gpu-c07", "gpu-c07.example.org", "alias", ""])
def test_a_node_that_slurm_does_not_name_is_known_by_its_hostname(hostname: str) -> None:
    environ = without(env.SRUN, "SLURMD_NODENAME")
    assert adopted(environ, host=Host(hostname)).values["node_rank"].text == "2"


@pytest.mark.parametrize(
    "host",
    [
        Host("train-2", "127.0.0.1 localhost\n10.244.1.17 train-2\n"),
        Host("train-2", "10.244.1.17 train-2 # train-2.workers\n"),
        Host("train-20", "10.244.1.17 train-2.workers train-20\n"),
        Host("gpu-host-7", "10.1.0.7 gpu-host-7.example.org gpu-host-7\n"),
        Host("2", "10.1.0.7 2.example.org 2\n"),
        Host(),
    ],
)
def test_a_pod_whose_name_tells_nothing_of_the_job_needs_rank_0s_address(host: Host) -> None:
    found = adopted(env.INDEXED_JOB, FOUR, host)
    assert found.missing == ["rdzv_id", "master_addr"]
    assert "headless service" in found.advice["master_addr"]


@pytest.mark.parametrize(
    ("job", "pod", "rank"), [(0, 0, "0"), (0, 1, "1"), (1, 0, "2"), (1, 1, "3")]
)
def test_the_ranks_of_a_jobset_are_counted_over_all_its_jobs(job: int, pod: int, rank: str) -> None:
    own = {"JOBSET_JOB_INDEX": str(job), "JOB_COMPLETION_INDEX": str(pod)}
    assert node(adopted(env.JOBSET | own, FOUR)) == f"{rank} 4 llm-workers-0-0.llm llm-workers"


# ---- lists of nodes, addresses, ids -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[001-003,7],gpu-[1-2]-a", "n001 n002 n003 n7 gpu-1-a gpu-2-a"),
        ("r[1-2]n[09-10]", "r1n09 r1n10 r2n09 r2n10"),
        ("n[99-101]", "n99 n100 n101"),
        ("n[1-003]", "n1 n2 n3"),
        ("login.example.org,n[5]", "login.example.org n5"),
        ("[1-2]", "1 2"),
        ("b,a,b", "b a b"),
    ],
)
def test_a_list_of_nodes_is_written_out_as_slurm_does(text: str, names: str) -> None:
    assert expand(text) == names.split()


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,", ",a", "a,,b", "a b", "n[", "n]", "n[]", "n[1", "n[3-1]", "n[a]", "n[1,]",
     "n[1-2-3]", "n[[1]]", "n[1]]", "n[-1]", "n[1 - 2]", "n[0-999999999999]", "n[0-200][0-200]",
     "n[\u0661]"],
)  # fmt: skip
def test_what_is_no_list_of_nodes_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"character|number|nodes|backwards"):
        expand(text)


@given(st.text("n019[],- \u0661\n", max_size=30))
def test_no_text_breaks_the_reading_of_a_list(text: str) -> None:
    try:
        names = expand(text)
    except ValueError:
        return
    assert names
    assert all(name and not re.search(r"[\[\],\s]", name) for name in names)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        *(("10.0.0.4:6105", "10.0.0.4"), ("10.0.0.4", "10.0.0.4"), ("[fd00::4]:6105", "fd00::4")),
        *(("fd00::4", "fd00::4"), ("node-0:2222", "node-0"), ("", "")),
    ],
)
def test_a_port_behind_an_address_is_taken_off(text: str, host: str) -> None:
    assert host_of(text) == host


@given(st.text(max_size=100))
def test_any_id_of_a_job_becomes_a_run_id_or_nothing(text: str) -> None:
    made = as_run_id(text)
    assert made == "" or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", made)


def test_two_long_ids_with_one_beginning_stay_two() -> None:
    first, second = (as_run_id("sky-" + "x" * 80 + end) for end in "ab")
    assert first != second
    assert len(first) == len(second) == 63


VALUES = st.sampled_from(
    ["", "0", "1", "4", "-1", "x", "a,b", "[]", "{}", "n[1-4]", "null", '["a"]', "9" * 30]
)
ODD = st.dictionaries(st.sampled_from(sorted(env.SRUN | env.AZUREML_MPI | env.JOBSET)), VALUES)
BASES = [env.SRUN, env.VOLCANO, env.SAGEMAKER, env.SKYPILOT, env.TENSORFLOW, env.SHELL]


@settings(max_examples=examples(200))
@given(st.sampled_from(BASES), ODD)
def test_no_environment_breaks_the_reading(base: dict[str, str], environ: dict[str, str]) -> None:
    try:
        found = adopted(base | environ)
    except UsageError:
        return
    assert {*found.values, *found.missing} == {"nnodes", "node_rank", "rdzv_id", "master_addr"}


# ---- values that cannot be ----------------------------------------------------------------------


def given_by(rank: str, size: str, master: str) -> dict[str, Value]:
    values = {"node_rank": (rank, "NODE_RANK"), "nnodes": (size, "NUM_NODES")}
    values["master_addr"] = (master, "MASTER_ADDR")
    return RUN | {name: Value(*value) for name, value in values.items() if value[0]}


SKY_2 = {"SKYPILOT_NODE_RANK": "2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "a b"}
ITSELF = "RANK is 1, and MASTER_ADDR is {}: that is this node, but node 0 is another one"
LOCAL = env.PYTORCHJOB | {"MASTER_ADDR": "localhost"}
FAR = {"AZ_BATCH_MASTER_NODE": "203.0.113.7:6000"}


@pytest.mark.parametrize(
    ("environ", "values", "message"),
    [
        (SKY_2, RUN, "SKYPILOT_NODE_RANK 2 is not in 0 to 1 (SKYPILOT_NUM_NODES is 2)"),
        (LOCAL, RUN, ITSELF.format("localhost")),
        (LOCAL | {"MASTER_ADDR": "127.0.0.1"}, RUN, ITSELF.format("127.0.0.1")),
        (LOCAL | {"MASTER_ADDR": "::1"}, RUN, ITSELF.format("::1")),
        (LOCAL, given_by("", "", "localhost"), ITSELF.format("localhost")),  # set by the platform
        (AZURE_0 | FAR, given_by("", "", "203.0.113.8"), "is 0, but MASTER_ADDR 203.0.113.8 is no"),
        (env.SHELL, given_by("x", "4", "a"), "NODE_RANK is 'x', which is not a node's number"),
    ],
)
def test_values_that_cannot_be_are_refused_with_where_they_come_from(
    environ: dict[str, str], values: dict[str, Value], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_values(adopted(environ, values))
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("environ", "values", "note"),
    [
        (LOCAL | {"RANK": "0"}, RUN, ""),
        (env.SHELL, given_by("1", "2", "localhost"), ""),  # somebody gives it himself
        (env.SHELL, given_by("0", "2", "127.0.0.1"), ""),
        (AZURE_0 | FAR, {}, "AZ_BATCH_MASTER_NODE 203.0.113.7 is not an address of this node ("),
        (
            *(AZURE_0 | {"AZ_BATCH_MASTER_NODE": "203.0.113.7"}, given_by("0", "3", "203.0.113.7")),
            "MASTER_ADDR 203.0.113.7 is not an address of this node (",
        ),
    ],
)
def test_an_address_of_rank_0_may_lead_here_from_outside(
    environ: dict[str, str], values: dict[str, Value], note: str
) -> None:
    notes = check_values(adopted(environ, values))
    assert [text[: len(note)] for text in notes] == ([note] if note else [])


# ---- the documentation --------------------------------------------------------------------------


def test_every_variable_that_is_read_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    files = Path(launcher.symmetric.platforms.__file__).parent.glob("*.py")
    parts = [each for file in files for each in ast.walk(ast.parse(file.read_text("utf-8")))]
    constants = [each for each in parts if isinstance(each, ast.Constant)]
    words = {each.value for each in constants if isinstance(each.value, str)}
    read = {word for word in words if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|RANK", word)}
    assert {"SLURM_NODEID", "JOB_COMPLETION_INDEX", "RANK", "TF_CONFIG"} <= read
    assert {name for name in read - {"MASTER_PORT"} if f"`{name}`" not in text} == set()
    assert "`VC_<TASK>_HOSTS`" in text


def test_every_platform_is_documented_in_the_order_in_which_it_is_asked() -> None:
    rows = re.findall(r"^\| \d+ \| \*\*(.+?)\*\*", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [name for name, _, _ in PLATFORMS]


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, 2),
        ({"SLURM_JOB_ID": "7"}, 0),
        ({"SLURM_RESTART_COUNT": "2"}, 0),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "often"}, 0),
    ],
)
def test_slurm_says_how_often_it_has_requeued_a_job(environ: dict[str, str], count: int) -> None:
    assert restarts_of_job(environ) == count
