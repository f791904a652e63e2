"""azure-identity, unpatched, against the fake of Microsoft Entra ID."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import ClientSecretCredential, WorkloadIdentityCredential
from cryptography.hazmat.primitives.asymmetric import rsa

from support.azure_fakes.entra.server import AUDIENCE, TENANT, Entra, FederatedCredential

CLIENT = "11111111-0000-4000-8000-000000000002"
ISSUER = "https://eastus.oic.prod-aks.azure.com/tenant/cluster/"
SUBJECT = "system:serviceaccount:batchaidev:trainer"
SCOPE = "https://management.azure.com/.default"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def entra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entra]:
    """A tenant that trusts the cluster's issuer, with one application."""
    with Entra(tmp_path) as entra:
        entra.register(CLIENT, secret="s3cret", federated=(FederatedCredential(ISSUER, SUBJECT),))
        entra.trust(
            ISSUER, {"keys": [jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True) | {"kid": "k"}]}
        )
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(entra.certificate))
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", entra.url)
        yield entra


@pytest.fixture
def workload(tmp_path: Path) -> "Workload":
    """A pod's projected service account token and the credential that uses it."""
    return Workload(tmp_path / "token")


class Workload:
    """A pod with workload identity; `claims` replace those of the cluster's issuer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def token(self, *, key: rsa.RSAPrivateKey = KEY, **claims: Any) -> str:
        body = {"iss": ISSUER, "sub": SUBJECT, "aud": [AUDIENCE], "exp": int(time.time()) + 600} | claims
        self.path.write_text(jwt.encode(body, key, algorithm="RS256", headers={"kid": "k"}))
        return self.credential().get_token(SCOPE).token

    def credential(self, tenant: str = TENANT, client: str = CLIENT) -> WorkloadIdentityCredential:
        return WorkloadIdentityCredential(tenant_id=tenant, client_id=client, token_file_path=str(self.path))


def test_a_service_account_token_is_exchanged_for_an_access_token(entra: Entra, workload: Workload) -> None:
    claims = entra.claims(workload.token(), "https://management.azure.com")
    assert (claims["appid"], claims["tid"]) == (CLIENT, TENANT)


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"iss": "https://elsewhere.example/"}, "AADSTS700211"),
        ({"sub": "system:serviceaccount:other:trainer"}, "AADSTS700213"),
        ({"aud": ["https://kubernetes.default.svc"]}, "AADSTS700212"),
        ({"exp": 1_700_000_000}, "AADSTS700024"),
    ],
)
def test_a_token_without_a_federated_credential_is_rejected(
    entra: Entra, workload: Workload, claims: dict[str, Any], code: str
) -> None:
    with pytest.raises(ClientAuthenticationError, match=code):
        workload.token(**claims)


def test_a_token_signed_by_another_key_is_rejected(entra: Entra, workload: Workload) -> None:
    with pytest.raises(ClientAuthenticationError, match=r"AADSTS50013.*signature"):
        workload.token(key=rsa.generate_private_key(public_exponent=65537, key_size=2048))


def test_an_unknown_tenant_and_an_unknown_application_are_rejected(entra: Entra, workload: Workload) -> None:
    workload.token()
    with pytest.raises(ClientAuthenticationError, match="AADSTS90002"):
        workload.credential(tenant="no-such-tenant").get_token(SCOPE)
    with pytest.raises(ClientAuthenticationError, match="AADSTS700016"):
        workload.credential(client="22222222-0000-4000-8000-000000000003").get_token(SCOPE)


def test_a_scope_that_is_no_resource_is_rejected(entra: Entra, workload: Workload) -> None:
    workload.token()
    with pytest.raises(ClientAuthenticationError, match="AADSTS1002012"):
        workload.credential().get_token("https://management.azure.com/user_impersonation")


def test_a_client_secret_is_exchanged_for_an_access_token(entra: Entra) -> None:
    credential = ClientSecretCredential(TENANT, CLIENT, "s3cret", disable_instance_discovery=True)
    assert entra.claims(credential.get_token(SCOPE).token, "https://management.azure.com")["appid"] == CLIENT


def test_a_wrong_client_secret_is_rejected(entra: Entra) -> None:
    credential = ClientSecretCredential(TENANT, CLIENT, "guess", disable_instance_discovery=True)
    with pytest.raises(ClientAuthenticationError, match="AADSTS7000215"):
        credential.get_token(SCOPE)


def test_a_token_for_one_resource_is_invalid_for_another(entra: Entra) -> None:
    with pytest.raises(jwt.InvalidAudienceError):
        entra.claims(entra.token(CLIENT, "https://storage.azure.com"), "https://management.azure.com")
