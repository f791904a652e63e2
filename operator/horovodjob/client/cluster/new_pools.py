"""Settings of new AKS node pools, compared with those of existing ones. Pure: same arguments, same result."""

import re
from dataclasses import dataclass
from typing import Any

from horovodjob.client.cluster.node_pools import GPU_VM_SIZE
from horovodjob.client.errors import UsageError

# Sizes of Batch AI's time: NC, NCv2, NCv3, ND and NV of the first generation.
RETIRED = re.compile(r"Standard_(NC(6|12|24)r?(s_v[23])?|ND(6|12|24)r?s|NV(6|12|24))", re.IGNORECASE)
# Keeps other pods off the nodes; workers with GPUs tolerate it.
GPU_TAINT = "sku=gpu:NoSchedule"


@dataclass(frozen=True, slots=True)
class Scale:
    """A number of nodes, and the limits of the autoscaler or None."""

    count: int
    limits: tuple[int, int] | None = None


def scale(target: int | None, minimum: int | None, maximum: int | None) -> Scale:
    """The scale of the options; equal limits are a fixed number, as in Batch AI. Raises UsageError."""
    if minimum is None and maximum is None:
        if target is None:
            raise UsageError(
                "give the number of nodes with `target=`, or the autoscaler's limits with `min=` and `max=`"
            )
        return Scale(target)
    if minimum is None or maximum is None:
        raise UsageError("the autoscaler needs both limits, `min=` and `max=`")
    if minimum > maximum:
        raise UsageError(f"`min={minimum}` is greater than `max={maximum}`")
    count = minimum if target is None else target
    if not minimum <= count <= maximum:
        raise UsageError(f"`target={count}` is not from `min={minimum}` to `max={maximum}`")
    return Scale(count) if minimum == maximum else Scale(count, (minimum, maximum))


def new_pool(vm_size: str, wanted: Scale, *, spot: bool, subnet: str | None) -> Any:
    """The pool as the client's model. Raises UsageError for a size that Azure no longer has."""
    from azure.mgmt.containerservice.models import AgentPool

    if RETIRED.fullmatch(vm_size):
        raise UsageError(
            f"Azure has retired {vm_size}; use a size of today, such as Standard_NC4as_T4_v3 (one T4) or "
            "Standard_NC24ads_A100_v4 (one A100)"
        )
    fields: dict[str, Any] = {
        "mode": "User",
        "os_type": "Linux",
        "type_properties_type": "VirtualMachineScaleSets",
        "vm_size": vm_size,
        "count": wanted.count,
        "enable_auto_scaling": wanted.limits is not None,
    }
    if wanted.limits:
        fields["min_count"], fields["max_count"] = wanted.limits
    if GPU_VM_SIZE.match(vm_size):
        fields["node_taints"] = [GPU_TAINT]
    if spot:
        # A maximum price of -1 is that of dedicated nodes.
        fields |= {"scale_set_priority": "Spot", "scale_set_eviction_policy": "Delete", "spot_max_price": -1.0}
    if subnet:
        fields["vnet_subnet_id"] = subnet
    return AgentPool(**fields)


def difference(name: str, existing: Any, wanted: Any) -> str | None:
    """What an existing pool has that was not requested, with the remedy; None if it is the requested one."""
    fixed = (
        ("VM size", existing.vm_size, wanted.vm_size),
        ("priority", _priority(existing), _priority(wanted)),
    )
    for title, has, wants in fixed:
        if has.casefold() != wants.casefold():
            return (
                f"pool {name} exists with the {title} {has}, which cannot become {wants}; choose another name, or "
                f"delete it with `az aks nodepool delete`"
            )
    has, wants = _scale_of(existing), _scale_of(wanted)
    if has == wants:
        return None
    if wanted.enable_auto_scaling:
        remedy = f"hvj cluster auto-scale -n {name} --min {wanted.min_count} --max {wanted.max_count}"
    else:
        remedy = f"hvj cluster resize -n {name} -t {wanted.count}"
    return f"pool {name} exists with {has}, not {wants}; change it with `{remedy}`"


def _priority(pool: Any) -> str:
    """Regular or Spot; the client has an enumeration or text."""
    priority = pool.scale_set_priority or "Regular"
    return str(getattr(priority, "value", priority))


def _scale_of(pool: Any) -> str:
    """The scale in words; the autoscaler changes the number of nodes of its pools."""
    if pool.enable_auto_scaling:
        return f"{pool.min_count} to {pool.max_count} nodes"
    return f"{pool.count} nodes"
