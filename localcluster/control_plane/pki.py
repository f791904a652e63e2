"""Certificates and kubeconfig files. openssl creates them, with separate CAs for Kubernetes, etcd and front proxy."""

import base64
import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import ClusterError

VALID_DAYS = 365
RENEW_AFTER_SECONDS = 300 * 86400
AUTHORITIES = {"ca": "kubernetes-ca", "etcd-ca": "etcd-ca", "front-proxy-ca": "front-proxy-ca"}
STAMP = "complete"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The contents of a certificate."""

    name: str
    subject: str
    authority: str = "ca"
    server: bool = False
    client: bool = True
    addresses: tuple[str, ...] = ()

    @property
    def extensions(self) -> str:
        """The X.509 extensions, as openssl reads them."""
        usages = [usage for usage, wanted in (("serverAuth", self.server), ("clientAuth", self.client)) if wanted]
        lines = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature,keyEncipherment",
            f"extendedKeyUsage={','.join(usages)}",
        ]
        if self.addresses:
            lines.append(f"subjectAltName={','.join(self.addresses)}")
        return "\n".join(lines)


def control_plane_certificates(addresses: Iterable[str]) -> tuple[Certificate, ...]:
    """The certificates of a control plane whose API server has these addresses."""
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    api_names = (
        *(f"DNS:{name}" for name in (*names, "localhost")),
        *(f"IP:{address}" for address in dict.fromkeys(("127.0.0.1", *addresses))),
    )
    return (
        Certificate("etcd", "/CN=etcd", "etcd-ca", server=True, addresses=("IP:127.0.0.1", "DNS:localhost")),
        Certificate("etcd-client", "/CN=kube-apiserver", "etcd-ca"),
        Certificate("apiserver", "/CN=kube-apiserver", server=True, client=False, addresses=api_names),
        Certificate("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client"),
        Certificate("front-proxy", "/CN=front-proxy-client", "front-proxy-ca"),
        Certificate("admin", "/O=system:masters/CN=admin"),
        Certificate("kube-controller-manager", "/CN=system:kube-controller-manager"),
        Certificate("kube-scheduler", "/CN=system:kube-scheduler"),
    )


def node_certificates(node: str, address: str) -> tuple[Certificate, ...]:
    """The certificates of the first node: kubelet, kube-proxy and CSI driver for Azure Files."""
    # The API server itself binds the ClusterRole system:node-proxier to this user.
    proxy = Certificate("kube-proxy", "/CN=system:kube-proxy")
    return proxy, Certificate("azure-files", "/CN=azure-files"), *kubelet_certificates(node, address)


def kubelet_certificates(node: str, address: str) -> tuple[Certificate, ...]:
    """The client certificate and the serving certificate of a kubelet."""
    identity = f"/O=system:nodes/CN=system:node:{node}"
    return (
        Certificate("kubelet", identity),
        Certificate("kubelet-serving", identity, server=True, client=False, addresses=(f"DNS:{node}", f"IP:{address}")),
    )


def ensure_certificates(directory: Path, certificates: tuple[Certificate, ...]) -> bool:
    """Create certificates unless the directory has exactly these and they are recent. Returns whether they are new."""
    wanted = hashlib.sha256(repr(certificates).encode()).hexdigest()
    if is_current(directory, wanted):
        return False
    fresh = fresh_directory(directory)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda item: make_authority(fresh, *item), AUTHORITIES.items()))
        service_account = pool.submit(make_service_account_key, fresh)
        list(pool.map(lambda certificate: make_certificate(fresh, certificate), certificates))
        service_account.result()
    replace_directory(fresh, directory, wanted)
    return True


def ensure_issued(directory: Path, certificates: tuple[Certificate, ...], authorities: Path) -> None:
    """Create certificates in `directory`, signed by CAs of another directory, and copy ca.crt from there.

    They are created again when that CA has changed.
    """
    authority = (authorities / "ca.crt").read_bytes()
    wanted = hashlib.sha256(repr(certificates).encode() + authority).hexdigest()
    if is_current(directory, wanted):
        return
    fresh = fresh_directory(directory)
    (fresh / "ca.crt").write_bytes(authority)
    for certificate in certificates:
        make_certificate(fresh, certificate, authorities)
    replace_directory(fresh, directory, wanted)


def is_current(directory: Path, wanted: str) -> bool:
    """Whether the directory is complete, has the wanted certificates, and is recent."""
    stamp = directory / STAMP
    return stamp.exists() and stamp.read_text() == wanted and time.time() - stamp.stat().st_mtime < RENEW_AFTER_SECONDS


def fresh_directory(directory: Path) -> Path:
    """An empty directory beside `directory`, which will replace it."""
    fresh = directory.with_name(f".{directory.name}-fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    return fresh


def replace_directory(fresh: Path, directory: Path, stamp: str) -> None:
    """Replace `directory` by `fresh`, and mark it as complete."""
    (fresh / STAMP).write_text(stamp)
    shutil.rmtree(directory, ignore_errors=True)
    fresh.rename(directory)


def make_key(path: Path) -> None:
    """Create an elliptic-curve key, which takes less time than an RSA key."""
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
    path.chmod(0o600)


def make_authority(directory: Path, name: str, common_name: str) -> None:
    """Create the key and the certificate of a CA."""
    make_key(directory / f"{name}.key")
    openssl(
        *("req", "-x509", "-new", "-key", f"{directory}/{name}.key", "-subj", f"/CN={common_name}"),
        *("-days", str(VALID_DAYS), "-out", f"{directory}/{name}.crt"),
        *("-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
    )


def make_certificate(directory: Path, certificate: Certificate, authorities: Path | None = None) -> None:
    """Create a key and a certificate in `directory`, signed by a CA of `authorities` or of the same directory."""
    authority = (authorities or directory) / certificate.authority
    base = directory / certificate.name
    serial = hashlib.sha256(f"{certificate.name} {certificate.subject}".encode()).digest()[:8]
    make_key(base.with_suffix(".key"))
    extensions = base.with_suffix(".ext")
    extensions.write_text(certificate.extensions)
    openssl("req", "-new", "-key", f"{base}.key", "-subj", certificate.subject, "-out", f"{base}.csr")
    openssl(
        *("x509", "-req", "-in", f"{base}.csr", "-days", str(VALID_DAYS), "-out", f"{base}.crt"),
        *("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"),
        *("-set_serial", str(int.from_bytes(serial))),
        *("-extfile", str(extensions)),
    )
    base.with_suffix(".csr").unlink()
    extensions.unlink()


def make_service_account_key(directory: Path) -> None:
    """Create the key pair for tokens of service accounts."""
    make_key(directory / "sa.key")
    openssl("ec", "-in", f"{directory}/sa.key", "-pubout", "-out", f"{directory}/sa.pub")


def openssl(*arguments: str) -> None:
    """Run openssl. Raises ClusterError if it fails."""
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"openssl {arguments[0]} ended with: {done.stderr.strip()}")


def write_kubeconfig(path: Path, pki: Path, *, user: str, server: str, name: str) -> None:
    """Write a kubeconfig that contains its certificates, so that it can be copied."""

    def data(file: str) -> str:
        return base64.b64encode((pki / file).read_bytes()).decode()

    text = f"""\
apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {data("ca.crt")}
users:
- name: {name}-{user}
  user:
    client-certificate-data: {data(f"{user}.crt")}
    client-key-data: {data(f"{user}.key")}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}-{user}
current-context: {name}
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-fresh")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.rename(path)
