"""`hvj run` and `hvj attach`: a script of a directory as a job, its output and its exit code."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.cluster.nodes import Nodes
from cli.cluster_state import TIME, ClusterState
from cli.job_share import ACCOUNT, connected_service
from cli.jobs.sent_code import SENT, code_of
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj, hvj_process, terminal
from horovodjob import Client, UsageError
from support.api_client import Object, wait_for
from support.azure_fakes.files.server import FilesService

TRAINING = {"epoch": 3, "epochs": 30, "progress": 0.1, "percent": "10%", "metrics": {"loss": 1.125}, "eta": TIME}
__all__ = ["connected_service"]


def started(cluster: ClusterState, name: str) -> Object:
    """The job with its launcher, as soon as `hvj run` has created it."""
    job = wait_for("the job", lambda: cluster.api.find(f"{cluster.jobs}/{name}"))
    cluster.pod(job, "launcher", node=NODE)
    return job


def end(cluster: ClusterState, kubelet: Kubelet, name: str, exit_code: int = 0, **status: Any) -> None:
    """The job and its output end."""
    cluster.succeed(name) if exit_code == 0 else cluster.fail(name, exit_code, **status)
    kubelet.log(cluster.namespace, f"{name}-launcher").end()
    cluster.end(f"{name}-launcher", "launcher")


def test_without_gpus_in_the_cluster_the_workers_use_none_and_the_first_line_says_so(
    project: Path, hvj: Hvj, cluster: ClusterState, nodes: Nodes
) -> None:
    def first_line(name: str, *options: str) -> tuple[int, str]:
        done = hvj("run", "--detach", "--image", "trainer:1", "--name", name, *options, "train.py")
        assert done.code == 0, done.stderr
        line = done.stderr.partition("\n")[0]
        return cluster.api.get(f"{cluster.jobs}/{name}")["spec"]["worker"]["gpus"], line

    nodes.add("kind-worker", labels={}, gpus=0, providerID="kind://docker/kind/kind-worker")
    nodes.add("bare-metal", labels={}, gpus=0)
    number, line = first_line("a")
    none = "no node of the cluster has a GPU, so the workers use none; --gpus 1 "
    assert (number, line.startswith(none)) == (0, True)
    number, line = first_line("b", "--cluster", "gpunp")
    assert (number, line.startswith("no node has a GPU now, and each worker waits for one; --gpus 0 ")) == (1, True)
    assert first_line("c", "--gpus", "2")[0] == 2
    nodes.add("aks-system", labels={}, gpus=0, on_azure=True)
    number, line = first_line("d")
    assert (number, line.startswith("no node has a GPU now")) == (1, True)
    nodes.add("gpu-0")
    number, line = first_line("e")
    assert (number, "GPU" in line) == (1, False)


def test_a_member_of_a_namespace_runs_a_script_and_gets_its_output_and_exit_code(
    project: Path, cluster: ClusterState, kubelet: Kubelet, member: None
) -> None:
    options = ("--nodes", "4", "--gpus", "0", "--name", "train", "--env", "SEED=1")
    with hvj_process("run", *options, "train.py", "--epochs", "30", "$HOME") as process:
        job = started(cluster, "train")
        log = kubelet.log(cluster.namespace, "train-launcher")
        log.write("Epoch 1/30")
        assert process.stdout
        assert process.stdout.readline() == "Epoch 1/30\n"
        log.write("Epoch 2/30")
        error = {"time": TIME, "attempt": 1, "reason": "RankFailed", "pod": "train-launcher", "container": "launcher"}
        end(cluster, kubelet, "train", 3, errors=[error | {"message": "Epoch 1/30\nEpoch 2/30"}])
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (3, "Epoch 2/30\n")
    assert "Failed, exit code 3" in stderr
    assert ("pod train-launcher container launcher\n" in stderr, "Epoch" in stderr) == (True, False), stderr
    spec = job["spec"]
    script = {"path": "/job/code/train.py", "interpreter": "python3", "args": ["--epochs", "30", "$$HOME"]}
    assert spec["script"] == script
    assert (spec["worker"]["replicas"], spec["worker"]["gpus"]) == (4, 0)
    assert spec["env"] == [{"name": "SEED", "value": "1"}]
    assert code_of(cluster, job) == SENT


def test_a_terminal_shows_the_training_and_ctrl_c_leaves_the_job_to_hvj_attach(
    project: Path, cluster: ClusterState, kubelet: Kubelet, member: None
) -> None:
    with terminal("run", "--name", "train", "train.py") as screen:
        screen.until("each worker requests 1 GPU; --gpus 0 runs the job without\n")
        assert started(cluster, "train")["spec"]["worker"]["gpus"] == 1
        kubelet.log(cluster.namespace, "train-launcher").write("Epoch 3/30")
        cluster.run(training=TRAINING)
        screen.until("Epoch 3/30")
        screen.until("epoch 3/30  10%  loss 1.125  ETA ")
        screen.interrupt()
        screen.until(f"hvj attach train -w {cluster.namespace}")
        screen.until(f"hvj job terminate -n train -w {cluster.namespace}")
        assert screen.end() == 130
    with hvj_process("attach", "train") as process:
        end(cluster, kubelet, "train", 7)
        assert process.communicate()[0] == "Epoch 3/30\n"
        assert process.returncode == 7


def pull_event(cluster: ClusterState, pod: Object, reason: str, message: str, moment: datetime) -> None:
    """An event about the image of the pod, as its kubelet creates it."""
    metadata = pod["metadata"]
    time = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    involved = {"kind": "Pod", "name": metadata["name"], "namespace": cluster.namespace, "uid": metadata["uid"]}
    body: Object = {"metadata": {"name": f"{metadata['name']}.{reason}"}, "involvedObject": involved, "type": "Normal"}
    body |= {"source": {"component": "kubelet", "host": pod["spec"]["nodeName"]}, "count": 1}
    body |= {"reason": reason, "message": message, "firstTimestamp": time, "lastTimestamp": time}
    cluster.api.create(f"/api/v1/namespaces/{cluster.namespace}/events", body)


def test_the_pull_of_the_image_is_shown_with_its_nodes_and_time(
    project: Path, cluster: ClusterState, kubelet: Kubelet, member: None
) -> None:
    with terminal("run", "--name", "train", "train.py", columns=100) as screen:
        started(cluster, "train")
        job = cluster.report(phase="Starting", workersReady="0/2")
        pods = [cluster.pod(job, "worker", index, node=node) for index, node in enumerate((NODE, "other"))]
        cluster.pod(cluster.create("train-worker"), "worker", node="third")
        begin = datetime.now(UTC) - timedelta(seconds=35)
        pull_event(cluster, pods[0], "Pulling", 'Pulling image "trainer:1"', begin)
        screen.until("pulling image trainer:1")
        screen.until("pulling image on 1 of 2 nodes, ")
        words = 'Successfully pulled image "trainer:1" in 40s (40s including waiting). Image size: 1468006400 bytes.'
        pull_event(cluster, pods[0], "Pulled", words, begin + timedelta(seconds=40))
        screen.until("pulled image trainer:1 on 1 node in 40 s, 1400 MiB")
        end(cluster, kubelet, "train")
        assert screen.end() == 0
        seconds = re.findall("pulling image on 1 of 2 nodes, ([0-9]+) s", screen.shown)
        assert seconds
        assert min(map(int, seconds)) >= 35


def test_a_job_runs_again_with_changes_and_with_a_copy_of_its_code(
    hvj: Hvj, project: Path, cluster: ClusterState
) -> None:
    assert hvj("run", "--detach", "--name", "first", "--env", "SEED=1", "train.py", "--epochs", "3").stdout == "first\n"
    (project / "train.py").write_text("changed since")
    again = ("--from", "first", "--name", "second", "--nodes", "2", "--env", "SEED=2", "--env", "RATE=1")
    assert hvj("run", "--detach", "--quiet", *again, "--", "--epochs", "5").code == 0
    cluster.api.delete(f"{cluster.jobs}/first")
    job = cluster.api.get(f"{cluster.jobs}/second")
    assert job["spec"]["script"]["args"] == ["--epochs", "5"]
    assert job["spec"]["worker"]["replicas"] == 2
    assert job["spec"]["env"] == [{"name": "SEED", "value": "2"}, {"name": "RATE", "value": "1"}]
    assert code_of(cluster, job)["train.py"] == "import package.model"


def test_a_dry_run_prints_yaml_that_creates_the_job(hvj: Hvj, project: Path, cluster: ClusterState) -> None:
    (project / "requirements.txt").write_text("six")
    options = ["--requirements", "requirements.txt", "--elastic", "2:8", "--spot", "--mount", "results=/results"]
    options += ["--env", "PYTHONPATH=/job/code/src"]
    done = hvj("run", "--dry-run", "--name", "train", *options, "train.py")
    assert done.code == 0, done.stderr
    assert cluster.api.items(cluster.jobs) == []
    code, job = yaml.safe_load_all(done.stdout)
    cluster.api.create(f"/api/v1/namespaces/{cluster.namespace}/configmaps", code)
    made = cluster.api.create(f"{cluster.jobs}?fieldValidation=Strict", job)
    assert "requirements.txt" in code_of(cluster, made)
    install = "python3 /job/code/.hvj/install_packages.py /job/code/requirements.txt /job/packages '' "
    assert install in made["spec"]["preparation"]["command"]
    assert made["spec"]["network"]["service"], "worker 0 gives the packages to the others"
    assert made["spec"]["env"] == [{"name": "PYTHONPATH", "value": "/job/code/src:/job/packages"}]
    assert (made["spec"]["elastic"]["minReplicas"], made["spec"]["worker"]["replicas"]) == (2, 8)
    assert {"name": "claim-results", "mountPath": "/results"} in made["spec"]["volumeMounts"]


def test_a_job_that_installs_packages_has_a_service_where_a_service_can_have_its_name(
    hvj: Hvj, project: Path, cluster: ClusterState
) -> None:
    (project / "requirements.txt").write_text("six")
    run = ("run", "--detach", "--quiet")
    assert hvj(*run, "--name", "2nd", "--requirements", "requirements.txt", "train.py").code == 0
    assert hvj(*run, "--from", "2nd", "--name", "second").code == 0
    assert hvj(*run, "--from", "second", "--name", "3rd").code == 0
    specs = {name: cluster.api.get(f"{cluster.jobs}/{name}")["spec"] for name in ("2nd", "second", "3rd")}
    assert [spec["network"]["service"] for spec in specs.values()] == [False, True, False]


def test_a_member_of_a_namespace_sweeps_a_script_whose_code_is_deleted_with_the_experiment(
    hvj: Hvj, project: Path, cluster: ClusterState, member: None
) -> None:
    search = ("--name", "digits", "--metric", "loss", "--sweep", "lr=0.1,0.01", "--sweep", "size=int:1:4")
    with hvj_process("run", *search, "--trials", "2", "train.py", "--shell=${HOME}") as process:
        for name in ("digits-0", "digits-1"):
            job = wait_for("the trial", lambda: cluster.api.find(f"{cluster.jobs}/{name}"))  # noqa: B023
            cluster.run(name, training={"epoch": 1, "progress": 1, "metrics": {"loss": 0.5}})
            cluster.succeed(name)
        stdout, stderr = process.communicate()
    best = yaml.safe_load(stdout)
    assert (process.returncode, best["job"], best["value"]) == (0, "digits-0", 0.5), stderr
    values = yaml.safe_load(job["metadata"]["annotations"]["horovodjob.dev/sweep-parameters"])
    assert job["spec"]["script"]["args"] == ["--shell=$${HOME}", f"--lr={values['lr']}", f"--size={values['size']}"]
    assert code_of(cluster, job)["train.py"] == "import package.model"

    assert hvj("experiment", "delete", "-n", "digits", "-y").code == 0
    assert cluster.api.items(cluster.jobs) == []
    assert cluster.codes() == []


def test_a_module_and_any_command_are_programs_too(hvj: Hvj, project: Path, cluster: ClusterState) -> None:
    (project / "package" / "__main__.py").write_text("")
    run = ("run", "--detach", "--name")
    assert hvj(*run, "a", "--nodes", "2", "-m", "package.model", "--epochs", "3", "-m").code == 0
    done = hvj(*run, "b", "--gpus=2", "--", "torchrun", "--nproc-per-node=2", "train.py", "--", "$HOME")
    assert (done.code, hvj("run", "--quiet", "-dn", "c", "--module=package", "x").code) == (0, 0)
    commands = [cluster.api.get(f"{cluster.jobs}/{name}")["spec"]["command"] for name in "abc"]
    assert commands == [
        ["python3", "-m", "package.model", "--epochs", "3", "-m"],
        ["torchrun", "--nproc-per-node=2", "train.py", "--", "$$HOME"],
        ["python3", "-m", "package", "x"],
    ]
    assert "each of 2 ranks runs: torchrun --nproc-per-node=2 train.py -- '$HOME'" in done.stderr
    assert "torchrun starts processes itself, once in each rank" in done.stderr
    local = hvj("run", "--local", "--", "torchrun", "train.py").stderr
    assert "one rank runs: torchrun train.py\ntorchrun starts processes itself" in local


NOTEBOOK = """
import math
from pathlib import Path as P

RATE = 0.5

def scaled(x):
    return x * RATE

def train(lr, epochs=1, *, name="x"):
    import sys
    print(scaled(lr), epochs, name, math.floor(2.5), P("a") / "b", flush=True)

model = object()

def bad():
    return model
"""


def test_python_runs_a_function_of_a_notebook_or_says_what_cannot_be_sent(
    cluster: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = tmp_path / "cell.py"
    cell.write_text(NOTEBOOK)
    notebook: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(NOTEBOOK, str(cell), "exec"), notebook)  # noqa: S102
    client = Client()
    job = client.run(notebook["train"], args={"lr": 3, "name": "it's"}, name="train", gpus=0)
    assert repr(job) == f"Job(name='train', namespace='{cluster.namespace}', phase='Queued')"
    code = code_of(cluster, job.manifest)
    assert list(code) == ["train.py"]
    (tmp_path / "train.py").write_text(code["train.py"])
    command = [sys.executable, str(tmp_path / "train.py"), "--epochs=4"]  # the last word is of a sweep
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1.5 4 it's 2 a/b\n"
    with pytest.raises(UsageError, match="bad uses model, a object from outside, which cannot be sent"):
        client.run(notebook["bad"])
    with pytest.raises(UsageError, match="argument lr of train is a object, which cannot be sent"):
        client.run(notebook["train"], args={"lr": object()})
    with pytest.raises(UsageError, match="is no function with a name and a source"):
        client.run(lambda: None)


def test_a_sweep_whose_first_job_is_refused_leaves_no_code(hvj: Hvj, project: Path, cluster: ClusterState) -> None:
    cluster.create("taken-0")
    for options, words in (
        (("--image", "two words"), "spec.image: Invalid value"),
        (("--name", "taken"), "job taken-0 exists and is no trial of this sweep"),
    ):
        done = hvj("run", "--quiet", *options, "--sweep", "lr=0.1,0.01", "train.py")
        assert (done.code, words in done.stderr, done.stderr.count("\n")) == (1, True, 1), done.stderr
        assert cluster.codes() == []


def test_what_a_killed_run_left_does_not_prevent_the_next(hvj: Hvj, project: Path, cluster: ClusterState) -> None:
    code, _ = yaml.safe_load_all(hvj("run", "--dry-run", "--name", "train", "train.py").stdout)
    code["metadata"]["annotations"] = {"left": "behind"}
    maps = f"/api/v1/namespaces/{cluster.namespace}/configmaps"
    cluster.api.create(maps, code)
    assert hvj("run", "--detach", "--name", "train", "train.py").code == 0
    made = cluster.api.get(f"{maps}/{code['metadata']['name']}")
    assert made["metadata"]["ownerReferences"][0]["name"] == "train"


def test_the_outputs_of_a_successful_run_are_downloaded_before_its_job_is_deleted(
    project: Path, cluster: ClusterState, kubelet: Kubelet, connected_service: FilesService, tmp_path: Path
) -> None:
    output = connected_service.accounts[ACCOUNT].directory / "myshare" / "segment" / "output"
    options = ("--share", "myshare", "--download", str(tmp_path / "results"), "--rm", "--name", "train")
    with hvj_process("run", *options, "train.py") as process:
        started(cluster, "train")
        output.mkdir(parents=True)
        (output / "model.h5").write_bytes(b"the model")
        cluster.run(outputPathSegment="segment")
        end(cluster, kubelet, "train")
        process.communicate()
        assert process.returncode == 0
    assert (tmp_path / "results" / "model.h5").read_bytes() == b"the model"
    found = cluster.api.find(f"{cluster.jobs}/train")
    assert found is None or found["metadata"].get("deletionTimestamp")


USAGE_ERRORS = (
    ((), "name the script to run, such as `hvj run train.py`"),
    (("missing.py",), "the script missing.py is not a file of the directory"),
    (("data.bin",), "the script data.bin is ignored by .gitignore or .hvjignore; add `!data.bin` to .hvjignore"),
    ((".gitignore",), "is neither a .py nor a .sh file; run other programs with `hvj run -- COMMAND`"),
    (("-m", "package/model.py"), "-m 'package/model.py' must be the name of a module"),
    (("-m",), "option '-m' requires an argument"),
    (("--gpus", "0", "--"), "name the command to run after --"),
    (("--new", "train.py"), "--new has an effect only with --sweep"),
    (("--workdir", "missing", "train.py"), "--workdir missing is not a directory"),
    (("--requirements", "missing.txt", "train.py"), "--requirements missing.txt is not a file of the directory"),
    (("--elastic", "8:2", "train.py"), "--elastic '8:2' must be MIN:MAX, such as 2:8"),
    (("--elastic", "2:8", "--nodes", "9", "train.py"), "--nodes 9 is not within --elastic 2:8"),
    (("--mount", "claim", "train.py"), "--mount 'claim' must be CLAIM=/PATH"),
    (("--mount", "claim=/job/code", "train.py"), "two volumes have the path /job/code: code and claim-claim"),
    (("--download", "results", "train.py"), "--download needs --share or --claim"),
    (("--local", "--dry-run", "train.py"), "--local creates no job"),
    (("--local", "--env", "SEED", "train.py"), "--env 'SEED' must be NAME=VALUE"),
    (("--local", "--from", "train"), "--local runs a directory and --from a job of the cluster"),
    (("--from", "train", "--workdir", "."), "--workdir has no effect with --from"),
    (("--share", "a", "--claim", "b", "train.py"), "--share and --claim are two places for the directory"),
    (("--claim", "B", "train.py"), "--claim 'B' must be the name of a PersistentVolumeClaim"),
    (("--rm", "--detach", "train.py"), "it cannot be combined with --detach"),
    (("--sweep", "lr=1,2", "--detach", "train.py"), "--sweep follows many jobs, so it cannot be combined with"),
    (("--sweep", "lr", "train.py"), "--sweep 'lr' must be NAME=VALUES, such as lr=log:1e-4:1e-1"),
    (("--sweep", "lr=1,2", "--sweep", "lr=3,4", "train.py"), "--sweep 'lr=3,4' names a parameter twice"),
    (("--trials", "4", "train.py"), "--trials has an effect only with --sweep"),
)


def test_wrong_usage_is_one_sentence(hvj: Hvj, project: Path) -> None:
    for arguments, words in USAGE_ERRORS:
        done = hvj("run", *arguments)
        assert (done.code, words in done.stderr, done.stderr.count("\n")) == (2, True, 1), (arguments, done.stderr)
