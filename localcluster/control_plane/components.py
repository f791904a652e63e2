"""Command lines of etcd, the API server, the controller manager and the scheduler.

A cluster and `standalone.ControlPlane` use the same, so both run the same API server.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from localcluster.binaries.cache import Binaries
from localcluster.binaries.kubernetes import minor
from localcluster.control_plane.pki import write_kubeconfig

# Above the default of 50 requests a second, which would limit what benchmarks measure.
REQUEST_RATE = ("--kube-api-qps=2000", "--kube-api-burst=4000")
# PodGroups, whose pods the scheduler places all or none, by the minor version of Kubernetes: their version in
# scheduling.k8s.io, and their feature gates. A program refuses the name of a feature that it does not know.
POD_GROUPS = {36: ("v1alpha2", "GenericWorkload=true,GangScheduling=true"), 37: ("v1beta1", "GenericWorkload=true")}


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """Addresses, ports and files of a control plane."""

    directory: Path
    address: str
    bind_address: str
    secure_port: int
    etcd_client_port: int
    etcd_peer_port: int
    service_cidr: str
    pod_cidr: str

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.address}:{self.secure_port}"

    @property
    def pki(self) -> Path:
        """The directory of certificates and keys."""
        return self.directory / "pki"

    @property
    def audit_log(self) -> Path:
        """The audit log: one JSON object a line for each request."""
        return self.directory / "log" / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """The audit policy."""
        return self.directory / "etc" / "audit-policy.json"

    @property
    def generated(self) -> Path:
        """The directory of certificates that components create themselves."""
        return self.directory / "etc" / "generated"

    @property
    def etcd_data(self) -> Path:
        """The data directory of etcd."""
        return self.directory / "etcd"

    def component_kubeconfig(self, component: str) -> Path:
        """The kubeconfig of a component."""
        return self.directory / "etc" / f"{component}.kubeconfig"


def write_configuration(settings: ControlPlaneSettings, clients: tuple[str, ...]) -> None:
    """Write the files that the command lines refer to, and a kubeconfig for each of the `clients`."""
    for directory in (settings.audit_log.parent, settings.generated):
        directory.mkdir(parents=True, exist_ok=True)
    settings.audit_policy.write_text(json.dumps(audit_policy(), indent=2))
    for client in clients:
        path = settings.component_kubeconfig(client)
        write_kubeconfig(path, settings.pki, user=client, server=settings.server, name="cluster")


def audit_policy() -> dict[str, object]:
    """An audit policy with one line for each completed request, from which benchmarks count API calls."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/metrics", "/version"]},
            {"level": "Metadata"},
        ],
    }


def etcd_command(binaries: Binaries, settings: ControlPlaneSettings) -> list[str]:
    """The command line of etcd, which listens on loopback."""
    client = f"https://127.0.0.1:{settings.etcd_client_port}"
    peer = f"http://127.0.0.1:{settings.etcd_peer_port}"
    pki = settings.pki
    return [
        str(binaries.path("etcd")),
        "--name=local",
        f"--data-dir={settings.etcd_data}",
        "--unsafe-no-fsync",  # after a crash of the machine, a test cluster is created again
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        f"--cert-file={pki}/etcd.crt",
        f"--key-file={pki}/etcd.key",
        f"--trusted-ca-file={pki}/etcd-ca.crt",
        "--client-cert-auth",
    ]


def apiserver_command(binaries: Binaries, settings: ControlPlaneSettings) -> list[str]:
    """PodSecurity and ValidatingAdmissionPolicy are on by default; NodeRestriction is not."""
    pki = settings.pki
    return [
        str(binaries.path("kube-apiserver")),
        f"--advertise-address={settings.address}",
        f"--bind-address={settings.bind_address}",
        f"--secure-port={settings.secure_port}",
        f"--etcd-servers=https://127.0.0.1:{settings.etcd_client_port}",
        f"--etcd-cafile={pki}/etcd-ca.crt",
        f"--etcd-certfile={pki}/etcd-client.crt",
        f"--etcd-keyfile={pki}/etcd-client.key",
        f"--service-cluster-ip-range={settings.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--anonymous-auth=false",
        "--allow-privileged=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
        "--enable-aggregator-routing=true",
        f"--audit-policy-file={settings.audit_policy}",
        f"--audit-log-path={settings.audit_log}",
        "--audit-log-maxsize=200",  # MB
        "--audit-log-maxbackup=2",
        f"--cert-dir={settings.generated}",
        "--profiling=false",
        *gang_gates(binaries),
        *gang_api(binaries),
    ]


def controller_manager_command(binaries: Binaries, settings: ControlPlaneSettings, *, secure_port: int) -> list[str]:
    """The command line of kube-controller-manager; with port 0 it serves neither health nor metrics."""
    pki, kubeconfig = settings.pki, settings.component_kubeconfig("kube-controller-manager")
    return [
        str(binaries.path("kube-controller-manager")),
        *client_flags(kubeconfig, settings, secure_port),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        f"--cluster-cidr={settings.pod_cidr}",
        f"--service-cluster-ip-range={settings.service_cidr}",
        *gang_gates(binaries),
    ]


def gang_gates(binaries: Binaries) -> tuple[str, ...]:
    """The flag of API server, controllers and scheduler for PodGroups; none in a version without them."""
    _, gates = POD_GROUPS.get(minor(binaries.kubernetes), ("", ""))
    return (f"--feature-gates={gates}",) if gates else ()


def gang_api(binaries: Binaries) -> tuple[str, ...]:
    """The flag of the API server for the API of PodGroups; none in a version without them."""
    version = pod_group_version(binaries)
    return (f"--runtime-config=scheduling.k8s.io/{version}=true",) if version else ()


def pod_group_version(binaries: Binaries) -> str:
    """The version of scheduling.k8s.io that has PodGroups; empty without one."""
    return POD_GROUPS.get(minor(binaries.kubernetes), ("", ""))[0]


def scheduler_command(binaries: Binaries, settings: ControlPlaneSettings, *, secure_port: int) -> list[str]:
    """The command line of kube-scheduler."""
    kubeconfig = settings.component_kubeconfig("kube-scheduler")
    flags = (*client_flags(kubeconfig, settings, secure_port), *gang_gates(binaries))
    return [str(binaries.path("kube-scheduler")), *flags]


def client_flags(kubeconfig: Path, settings: ControlPlaneSettings, secure_port: int) -> list[str]:
    """The flags that kube-controller-manager and kube-scheduler share."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure_port}",
        "--leader-elect=false",  # there is one of each, and an election takes two seconds
        f"--cert-dir={settings.generated}",
        "--profiling=false",
        *REQUEST_RATE,
    ]
