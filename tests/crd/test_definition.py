"""The CustomResourceDefinition as users see it: `kubectl apply`, `explain`, `get`, `scale`."""

import itertools
from collections.abc import Iterator

from horovodjob.api.crd import crd_yaml, custom_resource_definition
from support.api_client import BASE, Api, Object, job, wait_for

KILOBYTE = 1000
NAMES = (f"defined-{number}" for number in itertools.count())


def test_the_shipped_crd_is_generated_from_the_models() -> None:
    shipped = (BASE / "crd.yaml").read_text()
    assert shipped == crd_yaml(), "manifests/base/crd.yaml is out of date: run `make crd`"


def test_client_side_apply_has_room_for_its_annotation() -> None:
    assert len(crd_yaml().encode()) < 100 * KILOBYTE


def test_every_field_has_a_description() -> None:
    def fields_without_description(schema: Object, path: str) -> Iterator[str]:
        for name, field in schema.get("properties", {}).items():
            here = f"{path}.{name}"
            if not field.get("description") and here != ".metadata":
                yield here
            yield from fields_without_description(field, here)
        if "items" in schema:
            yield from fields_without_description(schema["items"], f"{path}[]")

    assert list(fields_without_description(schema(), "")) == []


def schema() -> Object:
    found: Object = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_client_side_apply_can_be_repeated(api: Api) -> None:
    for _ in range(2):
        done = api.kubectl("apply", "-f", str(BASE / "crd.yaml"))
        assert done.returncode == 0, done.stderr
    assert "unchanged" in done.stdout


def test_kubectl_explain_describes_fields(api: Api) -> None:
    words = {
        "runPolicy": ("How the job starts, restarts and ends.", "backoffLimit", "Number of restarts after failures"),
        "worker.template": ("A pod template", "null removes a field"),
    }

    def missing() -> list[str]:
        texts = {field: " ".join(api.kubectl("explain", f"hvj.spec.{field}").stdout.split()) for field in words}
        return [word for field, expected in words.items() for word in expected if word not in texts[field]]

    # The API server publishes the schema of a new CRD with a delay.
    wait_for(f"{words} in the explanations", lambda: not missing())


def test_defaults_are_stored_with_the_job(api: Api, jobs: str) -> None:
    made = api.create(jobs, job(next(NAMES), worker=None, command=None, script={"path": "/a.py"}))
    assert made["status"] == {"observedGeneration": -1}
    assert made["spec"]["worker"] == {"replicas": 1, "gpus": 1}
    assert made["spec"]["script"] == {"path": "/a.py", "interpreter": "python3", "args": []}
    assert made["spec"]["podSecurity"] == "Restricted"
    assert made["spec"]["scheduling"] == {"gang": "None", "timeoutSeconds": 600}
    assert made["spec"]["runPolicy"] == {
        "suspend": False,
        "terminate": False,
        "cleanPodPolicy": "Running",
        "onWorkerLoss": "Restart",
        "backoffLimit": 3,
    }


def test_nothing_of_templates_volumes_and_variables_is_pruned(api: Api, jobs: str) -> None:
    template = {
        "metadata": {"labels": {"a": "1"}, "surprise": [{}]},
        "spec": {"containers": [{"name": "worker", "newField": {"deep": [1, None, {"x": ""}]}}], "newField": "x"},
        "beside": {"spec": []},
    }
    lists = {
        "volumes": [{"name": "data", "csi": {"driver": "file.csi.azure.com", "volumeAttributes": {"shareName": "s"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True, "newField": {"a": 1}}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}, "newField": {"a": 1}}}],
        "envFrom": [{"prefix": "P_", "secretRef": {"name": "s", "optional": True}, "newField": {"a": 1}}],
    }
    role = {"template": template}
    made = api.create(jobs, job(next(NAMES), worker={"gpus": 0, **role}, launcher=role, **lists))
    assert made["spec"]["worker"]["template"] == made["spec"]["launcher"]["template"] == template
    assert {name: made["spec"][name] for name in lists} == lists


def test_scale_reads_and_writes_the_number_of_workers_unless_the_job_runs(api: Api, jobs: str) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, runPolicy={"suspend": True}))
    api.patch(f"{jobs}/{name}/status", {"status": {"replicas": 1, "selector": "horovodjob.dev/role=worker"}})
    assert api.kubectl("scale", "hvj", name, "--replicas=4").returncode == 0
    scale = api.get(f"{jobs}/{name}/scale")
    assert scale["spec"]["replicas"] == 4
    assert scale["status"] == {"replicas": 1, "selector": "horovodjob.dev/role=worker"}
    resumed = api.patch(f"{jobs}/{name}", {"spec": {"runPolicy": {"suspend": False}}})
    assert resumed["spec"]["worker"]["replicas"] == 4
    done = api.kubectl("scale", "hvj", name, "--replicas=5")
    assert "worker.replicas can change only while the job is suspended" in done.stderr


STATUS = {
    "phase": "Running",
    "workersReady": "2/2",
    "training": {"progress": 0.131, "percent": "13%", "metrics": {"loss": 1.1}},
    "restarts": 1,
    "exitCode": 3,
    "startTime": "2020-01-01T00:00:00Z",
    "completionTime": "2020-01-01T00:00:00Z",
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "RanksRunning",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }
    ],
}


def test_kubectl_get_shows_the_state_of_the_job_by_each_of_its_names(api: Api, jobs: str) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, pool="gpunp"))
    api.patch(f"{jobs}/{name}/status", {"status": STATUS})
    head, row = api.kubectl("get", "hvj", name).stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "WORKERS", "PROGRESS", "RESTARTS", "AGE"]
    assert row.split()[1:5] == ["Running", "2/2", "13%", "1"]
    head, row = api.kubectl("get", "hvjob", name, "-o", "wide").stdout.splitlines()
    wide = "NAME PHASE WORKERS PROGRESS RESTARTS AGE QUEUE POSITION POOL GPUS EXIT CODE START FINISHED REASON"
    assert " ".join(head.split()) == wide
    assert "gpunp 0 3" in " ".join(row.split())
    assert row.rstrip().endswith("RanksRunning")
    for word in ("horovodjob", "training"):
        assert name in api.kubectl("get", word).stdout


def test_the_status_is_a_subresource_whose_field_management_is_one_field(api: Api, jobs: str) -> None:
    name = next(NAMES)
    assert "phase" not in api.create(jobs, {**job(name), "status": {"phase": "Succeeded"}})["status"]
    stored = api.patch(f"{jobs}/{name}/status", {"spec": {"image": "other"}, "status": STATUS})
    assert (stored["spec"]["image"], stored["status"]["phase"]) == ("trainer:1", "Running")
    managed = [entry for entry in stored["metadata"]["managedFields"] if entry.get("subresource") == "status"]
    assert [entry["fieldsV1"] for entry in managed] == [{"f:status": {}}]
