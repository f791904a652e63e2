"""Each field of an MPIJob has an effect on the HorovodJob, or a warning names it."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from horovodjob.mpijob.conversion import Conversion, ConversionError, convert
from unit.mpijob.test_conversion import Object

Path = tuple[str | int, ...]
CONTAINER = """
              image: example/train:1
              imagePullPolicy: Always
              workingDir: /work
              resources: {limits: {cpu: 1, nvidia.com/gpu: 2}, requests: {memory: 1Gi}, claims: [{name: c}]}
              ports: [{containerPort: 9400}]
              readinessProbe: {exec: {command: [cat]}}
              livenessProbe: {exec: {command: [cat]}}
              startupProbe: {exec: {command: [cat]}}
              lifecycle: {preStop: {sleep: {seconds: 1}}}
              securityContext: {privileged: true}
              volumeMounts: [{name: data, mountPath: /data, readOnly: true}, {name: ssh-auth, mountPath: /ssh}]
              stdin: true
              tty: true
              volumeDevices: [{name: data, devicePath: /dev/x}]
              terminationMessagePath: /log
              resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
"""
POD = """
          affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone,
            labelSelector: {matchLabels: {training.kubeflow.org/job-role: worker}}}]}}
          volumes: [{name: data, emptyDir: {sizeLimit: 1Gi}}, {name: mpi-job-config, configMap: {name: x}}]
          nodeSelector: {kind: gpu}
          tolerations: [{key: sku, operator: Exists}]
          serviceAccountName: trainer
          imagePullSecrets: [{name: registry}]
          hostNetwork: true
          hostIPC: true
          dnsPolicy: ClusterFirstWithHostNet
          restartPolicy: OnFailure
          terminationGracePeriodSeconds: 0
          automountServiceAccountToken: false
          enableServiceLinks: true
          subdomain: x
          hostname: h
          nodeName: n
          activeDeadlineSeconds: 9
          schedulerName: mine
          runtimeClassName: nvidia
          priority: 3
          topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
          resourceClaims: [{name: c, resourceClaimTemplateName: t}]
          initContainers: [{name: fetch, image: "example/fetch:1", command: [sh, -c, fetch]}]
"""
TEMPLATE = """
      restartPolicy: Never
      template:
        metadata: {name: p, labels: {a: b}, annotations: {c: d}}
        spec:"""
EVERYTHING = yaml.safe_load(
    """
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata:
  name: train
  generateName: train-
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: gpus}
  annotations: {note: text}
  ownerReferences: [{kind: CronJob, name: nightly}]
  finalizers: [example.com/wait]
spec:
  slotsPerWorker: 2
  mainContainer: main
  sshAuthMountPath: /home/mpiuser/.ssh
  launcherCreationPolicy: WaitForWorkersReady
  mpiImplementation: OpenMPI
  cleanPodPolicy: All
  runPolicy:
    cleanPodPolicy: Running
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    backoffLimit: 2
    suspend: true
    managedBy: kueue.x-k8s.io/multikueue
    schedulingPolicy:
      {minAvailable: 3, queue: q, minResources: {cpu: 3}, priorityClass: high, scheduleTimeoutSeconds: 9}
  mpiReplicaSpecs:
    Launcher:
      replicas: 2"""
    + TEMPLATE
    + POD
    + """
          containers:
            - name: side
              image: example/side:1
            - name: main"""
    + CONTAINER.replace("nvidia.com/gpu: 2", "nvidia.com/gpu: 1")
    + """
              command: [/opt/site/bin/mpirun, --tag-output, -H, "a,b", -mca, plm_rsh_args, -p 22, -x, B=$(KEY)]
              args: [--bind-to, core, python, train.py]
              env: [{name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: ONLY, value: "1"}]
              envFrom: [{secretRef: {name: launcher}}]
    Worker:
      replicas: 2"""
    + TEMPLATE
    + POD.replace("kind: gpu", "kind: cpu")
    + """
          containers:
            - name: main"""
    + CONTAINER.replace("example/train:1", "example/train:2")
    + """
              command: [bash, -c]
              args: ["pip install x && /usr/sbin/sshd -De"]
              env: [{name: A, value: "1"}, {name: HOSTS, value: /etc/mpi/hostfile}]
              envFrom: [{configMapRef: {name: worker}, prefix: P_}]
"""
)
# What has no effect, in either kind of job.
NEUTRAL = ("metadata.generateName", "spec.mpiImplementation", "containers[0].name", "spec.mainContainer")


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    is_leaf = True
    for key, inner in items:
        is_leaf = False
        yield from leaves(inner, (*path, key))
    if is_leaf and path:
        yield path


def without(document: Object, path: Path) -> Object:
    result = inner = copy.deepcopy(document)
    for key in path[:-1]:
        inner = inner[key]  # type: ignore[index]
    del inner[path[-1]]  # type: ignore[arg-type]
    return result


def text_of(path: Path) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def outcome(document: Object) -> Conversion | str:
    try:
        return convert(document)
    except ConversionError as error:
        return str(error)


def is_named(place: str) -> bool:
    """Whether a warning has the path of the field, or of the object that is omitted with it."""
    result = outcome(EVERYTHING)
    assert isinstance(result, Conversion)
    named = {warning.partition(": ")[0] for warning in result.warnings} - {"spec"}
    return any(place == path or place.startswith((f"{path}.", f"{path}[")) for path in named)


@pytest.mark.parametrize("path", list(leaves(EVERYTHING)), ids=text_of)
def test_each_field_has_an_effect_or_a_warning(path: Path) -> None:
    if any(neutral in text_of(path) for neutral in NEUTRAL):
        return
    assert outcome(without(EVERYTHING, path)) != outcome(EVERYTHING) or is_named(text_of(path))


PLACES: tuple[Path, ...] = (
    (),
    ("metadata",),
    ("spec",),
    ("spec", "runPolicy"),
    ("spec", "runPolicy", "schedulingPolicy"),
    ("spec", "mpiReplicaSpecs"),
    *(
        ("spec", "mpiReplicaSpecs", role, *rest)
        for role in ("Launcher", "Worker")
        for rest in (
            (),
            ("template",),
            ("template", "metadata"),
            ("template", "spec"),
            ("template", "spec", "containers", 0),
            ("template", "spec", "containers", 0, "resources"),
            ("template", "spec", "affinity"),
        )
    ),
)


@settings(max_examples=150)
@given(st.sampled_from(PLACES), st.from_regex(r"\A[a-z]{8}\Z"), st.sampled_from(["x", 3, True, {"a": "b"}, ["x"]]))
def test_a_field_of_a_later_version_has_an_effect_or_a_warning(place: Path, key: str, value: Any) -> None:
    document: Any = copy.deepcopy(EVERYTHING)
    inner = document
    for step in place:
        inner = inner[step] if not isinstance(inner, dict) else inner.setdefault(step, {})
    inner[key] = value
    result = outcome(document)
    assert isinstance(result, Conversion), result
    assert result != outcome(EVERYTHING)
    assert key in str(result.job) or key in "\n".join(result.warnings)
