"""What is adopted from a platform's environment: whole environments, odd ones, two at once."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import launcher.symmetric.platforms
from launcher.symmetric.adopt import Adopted, adopt, one_of_several
from launcher.symmetric.claim import Host, Value, as_run_id, host_of
from launcher.symmetric.platforms import PLATFORMS, claims
from launcher.symmetric.slurm_nodes import expand
from launcher.symmetric.start import check_values
from rendezvous.wire.errors import UsageError
from tests.support import environments as env

DOCS = Path(__file__).parent.parent.parent / "docs" / "symmetric.md"
FOUR = {"nnodes": Value("4", "NUM_NODES")}


def adopted(
    environ: dict[str, str], given: Mapping[str, Value] | None = None, host: Host = env.NOBODY
) -> Adopted:
    return adopt(environ, given or {}, host)


def node(found: Adopted) -> tuple[str, ...]:
    """Rank, size, rank 0's place and run id; '-' for what nothing tells."""
    names = ("node_rank", "nnodes", "master_addr", "rdzv_id")
    return tuple(found.values[n].text if n in found.values else "-" for n in names)


def refusal(environ: dict[str, str], given: Mapping[str, Value] | None = None) -> UsageError:
    with pytest.raises(UsageError) as caught:
        adopted(environ, given).check()
    return caught.value


# ---- whole environments -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "host", "given", "platform", "expected"),
    [
        (env.SRUN, env.NOBODY, {}, "Slurm", ("2", "4", "gpu-c03", "slurm-418213-0")),
        (env.MPIRUN_IN_SLURM, env.NOBODY, {}, "Open MPI", ("1", "4", "-", "-")),
        (env.OPEN_MPI, env.NOBODY, {}, "Open MPI", ("1", "4", "-", "-")),
        (env.HYDRA, env.NOBODY, {}, "MPICH or Intel MPI", ("3", "4", "-", "-")),
        (
            *(env.INDEXED_JOB, env.INDEXED_POD, FOUR, "Kubernetes Indexed Job"),
            ("2", "4", "train-0.workers.team.svc.cluster.local", "train"),
        ),
        (
            *(env.JOBSET, env.NOBODY, FOUR, "JobSet"),
            ("2", "4", "llm-workers-0-0.llm", "llm-workers"),
        ),
        (env.PYTORCHJOB, env.NOBODY, {}, "RANK and WORLD_SIZE", ("1", "3", "mnist-master-0", "-")),
        (env.NEWER_PYTORCHJOB, env.NOBODY, {}, "Kubeflow", ("1", "3", "mnist-master-0", "-")),
        (env.TRAINJOB, env.NOBODY, {}, "Kubeflow", ("3", "4", "bert-node-0-0.bert", "-")),
        (env.VOLCANO, env.NOBODY, {}, "Volcano", ("1", "3", "lm-worker-0.lm", "lm")),
        (
            *(env.VOLCANO_PYTORCH, env.NOBODY, {}, "RANK and WORLD_SIZE"),
            ("2", "4", "lm-master-0.lm", "-"),
        ),
        (env.SAGEMAKER, env.NOBODY, {}, "SageMaker", ("2", "3", "algo-1", "lm-2026-01-01")),
        (
            *(env.SKYPILOT, env.NOBODY, {}, "SkyPilot"),
            ("1", "2", "10.0.0.5", env.SKYPILOT["SKYPILOT_TASK_ID"]),
        ),
        (env.AZUREML_PYTORCH, env.NOBODY, {}, "Azure ML", ("2", "3", "10.0.0.4", "keen_plum_4f5k")),
        (env.AZUREML_MPI, env.NOBODY, {}, "Azure ML", ("2", "3", "10.0.0.4", "keen_plum_4f5k")),
        (env.TENSORFLOW, env.NOBODY, {}, "TF_CONFIG", ("2", "3", "10.0.0.4", "-")),
        (env.SHELL, env.NOBODY, {}, "", ("-", "-", "-", "-")),
        (env.KUBERNETES, env.INDEXED_POD, {}, "", ("-", "-", "-", "-")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_platform_tells_a_node_which_one_it_is(
    environ: dict[str, str],
    host: Host,
    given: Mapping[str, Value],
    platform: str,
    expected: tuple[str, ...],
) -> None:
    found = adopted(environ, given, host)
    assert (found.platform, node(found), found.notes) == (platform, expected, ())
    if found.missing:
        with pytest.raises(UsageError):
            found.check()


def test_each_value_names_the_variables_that_it_comes_from() -> None:
    assert adopted(env.SRUN, {"rdzv_id": Value("mine", "--rdzv-id")}).values == {
        "nnodes": Value("4", "SLURM_STEP_NUM_NODES"),
        "node_rank": Value("2", "SLURM_NODEID"),
        "rdzv_id": Value("mine", "--rdzv-id"),
        "master_addr": Value("gpu-c03", "SLURM_STEP_NODELIST", note="its first node"),
    }


def test_variables_that_are_set_to_nothing_are_not_set() -> None:
    nothing = dict.fromkeys(env.SRUN | env.AZUREML_PYTORCH | env.VOLCANO | env.SAGEMAKER, "")
    assert adopted(nothing) == Adopted({})
    assert adopted(dict.fromkeys(env.TENSORFLOW | env.JOBSET | env.TRAINJOB, " ")) == Adopted({})


# ---- Slurm --------------------------------------------------------------------------------------


@pytest.mark.parametrize("environ", [env.SBATCH, env.SALLOC], ids=["sbatch", "salloc"])
def test_a_slurm_job_outside_of_srun_is_not_adopted_and_says_how_to_start(
    environ: dict[str, str],
) -> None:
    assert node(adopted(environ)) == ("-", "-", "-", "-")
    error = refusal(environ)
    assert error.message.startswith(
        "a symmetric start (RDZV_TOKEN) needs NUM_NODES (--nnodes) and NODE_RANK (--node-rank)"
    )
    assert error.hint == (
        "this is a Slurm job, but not inside srun, where one node runs alone; start all of them: "
        "srun --ntasks-per-node=1 rdzv launch ..."
    )


def test_a_step_on_a_part_of_the_job_has_ranks_of_its_own() -> None:
    step = {
        "SLURM_NODEID": "1",
        "SLURM_STEP_ID": "3",
        "SLURM_STEP_NODELIST": "gpu-c[04,07]",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    }
    assert node(adopted(env.SRUN | step)) == ("1", "2", "gpu-c04", "slurm-418213-3")


@pytest.mark.parametrize(
    ("changed", "message", "hint"),
    [
        (
            {"SLURM_STEP_TASKS_PER_NODE": "1(x2),8"},
            "several tasks on a node (SLURM_STEP_TASKS_PER_NODE is 1(x2),8): rdzv is started once ",
            "srun --ntasks-per-node=1 rdzv launch --nproc-per-node ...",
        ),
        (
            {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": ""},
            "srun starts several tasks on a node",
            "srun --ntasks-per-node=1",
        ),
        ({"SLURM_STEP_NUM_NODES": "5"}, "which is 4 nodes, and SLURM_STEP_NUM_NODES is 5", "give"),
        ({"SLURM_NODEID": "1"}, "this node, gpu-c07, is not node 1 of SLURM_STEP_NODELIST", "give"),
        ({"SLURM_NODEID": "4"}, "this node, gpu-c07, is not node 4 of SLURM_STEP_NODELIST", "give"),
        ({"SLURM_NODEID": "two"}, "SLURM_NODEID is 'two': no whole number", "the platform sets it"),
        (
            {"SLURM_STEP_NODELIST": "gpu-c[03-"},
            "SLURM_STEP_NODELIST is 'gpu-c[03-': no list of nodes (it cannot be read from char",
            "the platform sets it",
        ),
    ],
)
def test_a_slurm_step_that_cannot_be_is_refused(
    changed: dict[str, str], message: str, hint: str
) -> None:
    error = refusal(env.SRUN | changed)
    assert message in error.message
    assert error.hint.startswith(hint)
    everything = {name: Value("1", name) for name in ("nnodes", "node_rank", "master_addr")}
    assert adopted(env.SRUN | changed, everything).missing in ([], ["rdzv_id"])


def test_a_node_that_slurm_does_not_name_is_known_by_its_hostname() -> None:
    environ = {k: v for k, v in env.SRUN.items() if k != "SLURMD_NODENAME"}
    for hostname in ("gpu-c07", "gpu-c07.example.org", "alias", ""):
        assert adopted(environ, host=Host(hostname)).values["node_rank"].text == "2"
    with pytest.raises(UsageError, match="this node, gpu-d1, is not node 2 of SLURM_STEP_NODELIST"):
        adopted(environ, host=Host("gpu-d1.example.org"))


def test_the_groups_of_a_heterogeneous_step_are_counted_together() -> None:
    step = {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_PACK_GROUP_0": "gpu-c[03-04]"}
    assert node(adopted(env.SRUN | step)) == ("2", "4", "gpu-c03", "slurm-418213-0")


def test_a_slurm_without_the_list_or_the_step_variables_takes_those_of_the_job() -> None:
    older = {
        k: v for k, v in env.SRUN.items() if not k.startswith(("SLURM_STEP_N", "SLURM_STEP_T"))
    }
    assert node(adopted(older)) == ("2", "4", "gpu-c03", "slurm-418213-0")
    without = {k: v for k, v in older.items() if "NODELIST" not in k}
    assert adopted(without).missing == ["master_addr"]


# ---- lists of nodes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[001-003,7]", ["n001", "n002", "n003", "n7"]),
        ("n[001-003,7],gpu-[1-2]-a", ["n001", "n002", "n003", "n7", "gpu-1-a", "gpu-2-a"]),
        ("r[1-2]n[09-10]", ["r1n09", "r1n10", "r2n09", "r2n10"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[99-101]", ["n99", "n100", "n101"]),
        ("n[1-003]", ["n1", "n2", "n3"]),
        ("login.example.org,n[5]", ["login.example.org", "n5"]),
        ("[1-2]", ["1", "2"]),
        ("b,a,b", ["b", "a", "b"]),
    ],
)
def test_a_list_of_nodes_is_written_out_as_slurm_does(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,", ",a", "a,,b", "a b", "n[", "n]", "n[]", "n[1", "n[3-1]", "n[a]", "n[1,]",
     "n[1-2-3]", "n[[1]]", "n[1]]", "n[-1]", "n[1 - 2]", "n[0-999999999999]", "n[0-200][0-200]",
     "n[\u0661]"],
)  # fmt: skip
def test_what_is_no_list_of_nodes_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"character|number|nodes"):
        expand(text)


WORD = st.from_regex(r"[a-z]{1,3}-?", fullmatch=True)
NUMBERS = st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 5)), min_size=1, max_size=3)


@given(
    st.lists(
        st.tuples(WORD, st.none() | st.tuples(NUMBERS, st.integers(1, 5), WORD)),
        min_size=1,
        max_size=4,
    )
)
def test_a_list_of_nodes_is_what_was_compressed(
    items: list[tuple[str, tuple[list[tuple[int, int]], int, str] | None]],
) -> None:
    words, names = [], []
    for head, rest in items:
        if rest is None:
            words.append(head)
            names.append(head)
            continue
        ranges, width, tail = rest
        texts = [
            f"{first:0{width}d}" + (f"-{first + more:0{width}d}" if more else "")
            for first, more in ranges
        ]
        words.append(f"{head}[{','.join(texts)}]{tail}")
        for first, more in ranges:
            names += [f"{head}{n:0{width}d}{tail}" for n in range(first, first + more + 1)]
    assert expand(",".join(words)) == names


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_no_text_breaks_the_reading_of_a_list(text: str) -> None:
    try:
        names = expand(text)
    except ValueError:
        return
    assert names
    assert all(name and not re.search(r"[\[\],\s]", name) for name in names)


# ---- Kubernetes ---------------------------------------------------------------------------------


def test_an_indexed_job_needs_its_size_and_says_where_to_set_it() -> None:
    with pytest.raises(UsageError) as caught:
        adopted(env.INDEXED_JOB, host=env.INDEXED_POD).check()
    assert caught.value.message == (
        "a symmetric start (RDZV_TOKEN) needs NUM_NODES (--nnodes) on this node"
    )
    assert caught.value.hint == (
        "no variable tells a pod of an Indexed Job how many there are: set NUM_NODES, its "
        "completions, in its env"
    )


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
    with pytest.raises(UsageError) as caught:
        found.check()
    assert "headless service" in caught.value.hint


def test_the_full_name_of_a_pod_is_found_with_our_own_block_in_its_hosts_file() -> None:
    ours = "# >>> rdzv\n10.244.1.17 train-2 node-2\n::ffff:10.244.1.17 train-2\n# <<< rdzv\n"
    host = Host("train-2", ours + env.INDEXED_POD.hosts)
    assert node(adopted(env.INDEXED_JOB, FOUR, host))[2] == "train-0.workers.team.svc.cluster.local"


@pytest.mark.parametrize(
    ("job", "pod", "rank"), [(0, 0, "0"), (0, 1, "1"), (1, 0, "2"), (1, 1, "3")]
)
def test_the_ranks_of_a_jobset_are_counted_over_all_its_jobs(job: int, pod: int, rank: str) -> None:
    own = {"JOBSET_JOB_INDEX": str(job), "JOB_COMPLETION_INDEX": str(pod)}
    assert node(adopted(env.JOBSET | own, FOUR))[0] == rank


def test_a_jobset_whose_pods_do_not_tell_their_job_is_not_numbered_by_the_pod_alone() -> None:
    for name in ("JOBSET_JOB_INDEX", "JOBSET_REPLICAS", "REPLICATED_JOB_NAME"):
        environ = {k: v for k, v in env.JOBSET.items() if k != name}
        (found,) = claims(environ, env.INDEXED_POD, 4)
        assert found.platform == "JobSet"
        error = refusal(environ, FOUR)
        assert "JOBSET_JOB_INDEX and JOBSET_REPLICAS from its annotations" in error.hint


def test_a_size_that_does_not_fit_a_jobset_is_refused() -> None:
    error = refusal(env.JOBSET, {"nnodes": Value("5", "NUM_NODES")})
    assert "5 nodes in 2 jobs (JOBSET_REPLICAS) are no whole jobs" in error.message


def test_an_elastic_size_is_taken_as_it_is() -> None:
    found = adopted(env.NEWER_PYTORCHJOB | {"PET_NNODES": "2:3", "PET_RDZV_ID": "mnist"})
    assert node(found) == ("1", "2:3", "mnist-master-0", "mnist")
    assert refusal(env.TRAINJOB | {"PET_NNODES": "many"}).message == (
        "PET_NNODES is 'many': no number of nodes"
    )


def test_several_tasks_of_a_volcano_job_are_counted_by_its_pytorch_plugin_only() -> None:
    error = refusal(env.VOLCANO_TASKS)
    assert error.message == (
        "VC_TASK_INDEX counts the pods of each task by themselves, and this job has the tasks "
        "master, worker"
    )


def test_a_volcano_job_without_its_services_says_which_plugin_tells_the_rest() -> None:
    error = refusal(env.KUBERNETES | {"VC_TASK_INDEX": "1"})
    assert "needs NUM_NODES (--nnodes) and RDZV_ID (--rdzv-id) and MASTER_ADDR" in error.message
    assert error.hint == (
        "Volcano tells it with its plugins env and svc: add 'svc: []' to the job's plugins"
    )


# ---- clouds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"SM_HOSTS": "[]"}, "SM_CURRENT_HOST algo-2 does not stand once in SM_HOSTS ()"),
        ({"SM_HOSTS": '["algo-2","algo-2"]'}, "does not stand once in SM_HOSTS (algo-2, algo-2)"),
        ({"SM_HOSTS": '{"hosts": "algo-2"}'}, "no list of host names"),
        ({"SM_HOSTS": "algo-1,algo-2"}, "SM_HOSTS is 'algo-1,algo-2': no JSON"),
        ({"SM_HOSTS": '["algo-1", 2]'}, "no list of host names"),
    ],
)
def test_a_list_of_sagemaker_that_cannot_be_is_refused(
    changed: dict[str, str], message: str
) -> None:
    assert message in refusal(env.SAGEMAKER | changed).message


def test_every_host_of_sagemaker_gets_the_rank_of_its_name_whatever_the_order_of_the_list() -> None:
    for hosts in (["algo-10", "algo-2", "algo-1"], ["algo-1", "algo-10", "algo-2"]):
        nodes = [
            node(adopted(env.SAGEMAKER | {"SM_CURRENT_HOST": h, "SM_HOSTS": json.dumps(hosts)}))
            for h in ("algo-1", "algo-10", "algo-2")
        ]
        assert [n[0] for n in nodes] == ["0", "1", "2"]
        assert {n[2] for n in nodes} == {"algo-1"}


def test_a_list_of_skypilot_of_another_length_is_refused() -> None:
    assert refusal(env.SKYPILOT | {"SKYPILOT_NUM_NODES": "3"}).message == (
        "SKYPILOT_NODE_IPS holds 2 addresses, and SKYPILOT_NUM_NODES is 3"
    )


def test_an_azure_job_without_a_distribution_says_what_to_give_it() -> None:
    error = refusal(env.AZUREML)
    assert error.message == (
        "a symmetric start (RDZV_TOKEN) needs NODE_RANK (--node-rank) on this node"
    )
    assert "distribution: {type: pytorch, process_count_per_instance: 1}" in error.hint
    assert node(adopted(env.AZUREML | {"AZ_BATCHAI_TASK_INDEX": "1"}))[0] == "1"


@pytest.mark.parametrize(
    "changed",
    [
        env.AZUREML_PYTORCH | {"LOCAL_RANK": "1", "RANK": "17"},
        env.AZUREML_PYTORCH | {"RANK": "16", "WORLD_SIZE": "24"},
        env.AZUREML_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
    ],
)
def test_several_processes_on_a_node_of_azure_are_refused(changed: dict[str, str]) -> None:
    error = refusal(changed)
    assert error.message.startswith("Azure ML starts several processes on a node")
    assert "process_count_per_instance: 1" in error.hint


def test_azure_on_one_node_has_its_master_elsewhere() -> None:
    one = {k: v for k, v in env.AZUREML_MPI.items() if k != "AZ_BATCH_MASTER_NODE"}
    one |= {"AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.4", "AZUREML_NODE_COUNT": "1"}
    one |= {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    assert node(adopted(one)) == ("0", "1", "10.0.0.4", "keen_plum_4f5k")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("10.0.0.4:6105", "10.0.0.4"),
        ("10.0.0.4", "10.0.0.4"),
        ("[fd00::4]:6105", "fd00::4"),
        ("[fd00::4]", "fd00::4"),
        ("fd00::4", "fd00::4"),
        ("node-0:2222", "node-0"),
        ("node-0", "node-0"),
        ("", ""),
    ],
)
def test_a_port_behind_an_address_is_taken_off(text: str, host: str) -> None:
    assert host_of(text) == host


# ---- MPI, TensorFlow, PyTorch -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (env.OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        (env.HYDRA | {"MPI_LOCALNRANKS": "2"}, "MPI_LOCALNRANKS"),
    ],
)
def test_several_processes_of_mpi_on_a_node_are_refused(environ: dict[str, str], name: str) -> None:
    error = refusal(environ)
    assert error.message == (
        f"MPI starts 2 processes on this node ({name}): rdzv is started once on each node and "
        "starts the node's processes itself"
    )
    assert "ppr:1:node" in error.hint


def test_mpi_says_how_to_give_what_it_does_not_tell() -> None:
    error = refusal(env.OPEN_MPI)
    assert error.message == (
        "a symmetric start (RDZV_TOKEN) needs RDZV_ID (--rdzv-id) and MASTER_ADDR (--master-addr) "
        "on this node"
    )
    assert "mpirun -x MASTER_ADDR=" in error.hint
    assert "mpirun -x RDZV_ID=" in error.hint


def tensorflow(cluster: object, kind: str = "worker", index: object = 0) -> dict[str, str]:
    task = {"type": kind, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def test_the_chief_of_tensorflow_is_rank_0_and_without_one_the_first_worker() -> None:
    cluster = {"worker": ["w0:1", "w1:1"], "chief": ["c0:1"]}
    assert node(adopted(tensorflow(cluster, "chief")))[:3] == ("0", "3", "c0")
    assert node(adopted(tensorflow(cluster, "worker", 0)))[:3] == ("1", "3", "c0")
    alone = {"worker": ["[fd00::1]:2222", "[fd00::2]:2222"]}
    assert node(adopted(tensorflow(alone, "worker", "1")))[:3] == ("1", "2", "fd00::1")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (tensorflow({"worker": ["w:1"], "ps": ["p:1"]}), "has the tasks worker, ps"),
        (tensorflow({"worker": ["w:1"]}, index=1), "this is worker 1"),
        (tensorflow({"worker": ["w:1"]}, index=-1), "this is worker -1"),
        (tensorflow({"worker": ["w:1"]}, kind="evaluator"), "this is evaluator 0"),
        ({"TF_CONFIG": "{"}, "no JSON"),
        ({"TF_CONFIG": "[" * 100_000}, "no JSON"),
        ({"TF_CONFIG": "[]"}, "not of TensorFlow's form"),
        ({"TF_CONFIG": '{"cluster": {"worker": 3}}'}, "not of TensorFlow's form"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["w:1"]}}'}, "not of TensorFlow's form"),
    ],
)
def test_a_tf_config_that_gives_no_rank_is_refused(environ: dict[str, str], words: str) -> None:
    assert words in refusal(environ).message


@pytest.mark.parametrize(
    "more",
    [{"LOCAL_RANK": "1"}, {"LOCAL_WORLD_SIZE": "8"}, {"TORCHELASTIC_RUN_ID": "none"}],
    ids=str,
)
def test_ranks_that_count_processes_are_refused(more: dict[str, str]) -> None:
    error = refusal(env.PYTORCHJOB | more)
    assert error.message.startswith("RANK 1 of WORLD_SIZE 3 counts processes")


def test_ranks_beside_another_node_rank_count_processes_and_are_left_alone() -> None:
    environ = {"RANK": "8", "WORLD_SIZE": "16", "NODE_RANK": "1", "MASTER_ADDR": "a"}
    given = {"node_rank": Value("1", "NODE_RANK"), "master_addr": Value("a", "MASTER_ADDR")}
    assert adopted(environ, given).missing == ["nnodes", "rdzv_id"]


# ---- several at once ----------------------------------------------------------------------------


def test_what_was_given_comes_first_and_a_difference_is_told() -> None:
    given = {"node_rank": Value("0", "NODE_RANK"), "nnodes": Value("2:4", "--nnodes")}
    found = adopted(env.SRUN, given)
    assert node(found) == ("0", "2:4", "gpu-c03", "slurm-418213-0")
    assert found.notes == ("the node rank is 0 (NODE_RANK), and Slurm says 2 (SLURM_NODEID)",)


def test_of_two_platforms_the_first_is_adopted_and_a_difference_is_told() -> None:
    found = adopted(env.TENSORFLOW | env.SRUN)
    assert node(found) == ("2", "4", "gpu-c03", "slurm-418213-0")
    assert found.notes == (
        "the number of nodes is 4 (SLURM_STEP_NUM_NODES), and TF_CONFIG says 3 (TF_CONFIG)",
    )


def test_a_platform_that_builds_upon_another_comes_before_it() -> None:
    both = env.TRAINJOB | {"JOB_COMPLETION_INDEX": "0"}
    assert adopted(both, host=env.INDEXED_POD).platform == "Kubeflow"
    assert adopted(env.VOLCANO | env.AZUREML_PYTORCH).platform == "Azure ML"
    assert adopted(env.VOLCANO | env.AZUREML).platform == "Volcano"  # Azure tells no rank here


def test_a_later_platform_in_disorder_does_not_matter() -> None:
    found = adopted(env.SRUN | {"TF_CONFIG": "{"} | env.SAGEMAKER | {"SM_HOSTS": "["})
    assert (found.platform, found.missing, found.notes) == ("Slurm", [], ())


def test_nothing_of_a_second_platform_is_mixed_in() -> None:
    found = adopted(env.INDEXED_JOB | env.TENSORFLOW, host=env.INDEXED_POD)
    assert found.platform == "Kubernetes Indexed Job"
    assert found.missing == ["nnodes"]


@pytest.mark.parametrize("name", ["node_rank", "nnodes", "master_addr"])
def test_a_platform_in_disorder_is_told_only_when_something_of_it_is_needed(name: str) -> None:
    environ = env.SRUN | {"SLURM_STEP_TASKS_PER_NODE": "8(x4)"}
    everything = {
        "node_rank": Value("1", "NODE_RANK"),
        "nnodes": Value("4", "NUM_NODES"),
        "master_addr": Value("a", "MASTER_ADDR"),
        "rdzv_id": Value("r", "RDZV_ID"),
    }
    assert adopted(environ, everything) == Adopted(everything, frozenset(everything))
    del everything[name]
    with pytest.raises(UsageError, match="several tasks"):
        adopted(environ, everything)


# ---- values that cannot be ----------------------------------------------------------------------


def test_a_rank_outside_of_the_run_is_refused_with_where_both_come_from() -> None:
    environ = {"SKYPILOT_NODE_RANK": "2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "a b"}
    found = adopted(environ, {"rdzv_id": Value("r", "RDZV_ID")})
    with pytest.raises(UsageError) as caught:
        check_values(found)
    assert caught.value.message == (
        "SKYPILOT_NODE_RANK 2 is not in 0 to 1 (SKYPILOT_NUM_NODES is 2)"
    )


@pytest.mark.parametrize("master", ["localhost", "127.0.0.1", "::1"])
def test_a_platform_that_sends_the_others_to_themselves_is_refused(master: str) -> None:
    environ = env.PYTORCHJOB | {"MASTER_ADDR": master}
    found = adopted(environ, {"rdzv_id": Value("r", "RDZV_ID")})
    with pytest.raises(UsageError) as caught:
        check_values(found)
    assert caught.value.message == (
        f"RANK is 1, and MASTER_ADDR is {master}: that is this node itself, and rank 0 is another"
    )
    assert check_values(adopted(environ | {"RANK": "0"}, {"rdzv_id": Value("r", "RDZV_ID")})) == []


def test_a_plain_variable_that_the_platform_has_set_is_judged_as_the_platforms() -> None:
    given = {"rdzv_id": Value("r", "RDZV_ID"), "master_addr": Value("localhost", "MASTER_ADDR")}
    environ = env.PYTORCHJOB | {"MASTER_ADDR": "localhost"}
    with pytest.raises(UsageError, match="RANK is 1, and MASTER_ADDR is localhost"):
        check_values(adopted(environ, given))
    given |= {"node_rank": Value("0", "NODE_RANK"), "nnodes": Value("3", "NUM_NODES")}
    given["master_addr"] = Value("203.0.113.7", "MASTER_ADDR")
    environ = env.AZUREML_PYTORCH | {"NODE_RANK": "0", "RANK": "0"}
    (note,) = check_values(adopted(environ | {"AZ_BATCH_MASTER_NODE": "203.0.113.7"}, given))
    assert note.startswith("MASTER_ADDR 203.0.113.7 is no address of this node (")


def test_an_address_that_somebody_gives_himself_may_be_the_nodes_own() -> None:
    words = ("1", "2", "localhost", "r")
    names = ("node_rank", "nnodes", "master_addr", "rdzv_id")
    given = {name: Value(word, name) for name, word in zip(names, words, strict=True)}
    assert check_values(adopted(env.SHELL, given)) == []


def test_an_address_that_a_platform_gives_rank_0_may_lead_here_from_outside() -> None:
    environ = env.AZUREML_PYTORCH | {"NODE_RANK": "0", "RANK": "0"}
    environ |= {"AZ_BATCH_MASTER_NODE": "203.0.113.7:6000"}
    (note,) = check_values(adopted(environ))
    assert note.startswith("AZ_BATCH_MASTER_NODE 203.0.113.7 is no address of this node (")
    given = {"master_addr": Value("203.0.113.8", "MASTER_ADDR")}
    with pytest.raises(UsageError, match=r"is 0, but MASTER_ADDR 203\.0\.113\.8 is no addr"):
        check_values(adopted(environ, given))


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


@given(st.dictionaries(st.sampled_from(sorted(env.SRUN | env.AZUREML_MPI | env.JOBSET)), VALUES))
def test_no_environment_breaks_the_reading(environ: dict[str, str]) -> None:
    for base in (env.SRUN, env.VOLCANO, env.SAGEMAKER, env.SKYPILOT, env.TENSORFLOW, env.SHELL):
        try:
            found = adopted(base | environ)
        except UsageError:
            continue
        assert set(found.values) | set(found.missing) == {
            *("nnodes", "node_rank", "rdzv_id", "master_addr")
        }


# ---- the documentation --------------------------------------------------------------------------


def test_every_variable_that_is_read_is_documented() -> None:
    source = Path(launcher.symmetric.platforms.__file__).read_text(encoding="utf-8")
    text = DOCS.read_text(encoding="utf-8")
    read = {
        constant.value
        for constant in ast.walk(ast.parse(source))
        if isinstance(constant, ast.Constant)
        and isinstance(constant.value, str)
        and re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|RANK", constant.value)
    }
    assert {"SLURM_NODEID", "JOB_COMPLETION_INDEX", "RANK", "TF_CONFIG"} <= read
    assert {name for name in read if f"`{name}`" not in text} == set()
    assert "`VC_<TASK>_HOSTS`" in text


def test_every_platform_is_documented_in_the_order_in_which_it_is_asked() -> None:
    rows = re.findall(r"^\| \d+ \| \*\*(.+?)\*\*", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [name for name, _, _ in PLATFORMS]


def test_only_a_node_that_says_its_rank_among_several_is_one_of_several() -> None:
    claim = one_of_several(env.SRUN, env.NOBODY, None)
    assert claim is not None
    assert claim.rank == 2
    assert one_of_several({}, env.NOBODY, 4) is None
    adopted(env.SRUN).check()  # nothing is missing
