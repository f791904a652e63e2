"""Node images of AKS: whether they are replaced in a window that an administrator has set."""

from collections.abc import Iterator

from horovodjob.client.cluster import aks
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Outcome
from horovodjob.client.errors import ClientError

# The channels that replace the images of running nodes, which ends the pods on them. NodeImage is the default.
REPLACING = ("NodeImage", "SecurityPatch")
ADD_WINDOW = (
    "az aks maintenanceconfiguration add --resource-group {group} --cluster-name {cluster} --name {window} "
    "--schedule-type Weekly --day-of-week Sunday --interval-weeks 1 --start-time 02:00 --duration 4"
)


def node_images(facts: Facts) -> Iterator[CheckResult]:
    """AKS replaces the images of its nodes each week; without a window, while jobs run."""
    place = aks.cluster_reference(facts.nodes, None, None, None)
    if place is None:
        return
    try:
        cluster = aks.ManagedCluster(place)
        channel, windows = cluster.node_image_channel(), cluster.maintenance_windows()
    except ClientError as error:
        yield CheckResult("node images", Outcome.NOT_CHECKED, str(error))
        return
    if channel not in REPLACING:
        message = f"AKS replaces no images of running nodes (node OS upgrade channel {channel})"
        yield CheckResult("node images", Outcome.OK, message)
    elif aks.NODE_IMAGE_WINDOW in windows:
        yield CheckResult("node images", Outcome.OK, f"replaced in the window {aks.NODE_IMAGE_WINDOW}")
    else:
        message = (
            f"AKS replaces the images of nodes at any time (node OS upgrade channel {channel}, no window "
            f"{aks.NODE_IMAGE_WINDOW}), and the jobs on them restart"
        )
        command = ADD_WINDOW.format(group=cluster.group, cluster=cluster.name, window=aks.NODE_IMAGE_WINDOW)
        yield CheckResult("node images", Outcome.WARNING, message, command)
