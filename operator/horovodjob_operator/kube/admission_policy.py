"""Whether the admission policy of the installation limits this operator: a policy for another account has no effect."""

import logging

from horovodjob_operator.errors import ClusterError
from horovodjob_operator.kube.requests.api_client import METADATA_ONLY, ApiClient
from horovodjob_operator.kube.requests.object_paths import collection_path

REVIEWS_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
log = logging.getLogger("horovodjob")


async def report_missing_policy(client: ApiClient, *namespaces: str) -> None:
    """Logs the account of this operator if it could create a Secret that belongs to no job in the first namespace.

    A dry run shows the effect of the policy, its binding and the name of its account together. The operator has no
    right to read policies.
    """
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "horovodjob-policy-check"}, "type": "Opaque"}
    path = collection_path("v1", "Secret", next(filter(None, namespaces)))
    try:
        await client.request("POST", path, body, params={"dryRun": "All"}, accept=METADATA_ONLY)
    except ClusterError:
        return  # Refused by the policy, or by a role or a quota, which are checked first.
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        account = (await client.request("POST", REVIEWS_PATH, review))["status"]["userInfo"]["username"]
    except ClusterError:
        account = "the account of this operator"
    log.warning(
        "no admission policy limits %s: whoever has its token can create pods that belong to no job. Apply the policy "
        "of manifests/base, or set rbac.admissionPolicy of the chart, for the namespace and the name of this account",
        account,
    )
