"""What pods request of their nodes: amounts of resources, and Kubernetes' way to write them."""

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

Amounts = dict[str, Fraction]
# An exponent of more than two digits is no amount of anything, and would take all of the memory.
QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
FACTORS = {
    **{
        suffix: Fraction(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}


def amount(quantity: object) -> Fraction:
    """The number that a quantity stands for; 0 for what is none, for the API server refuses the pod that has it."""
    match = QUANTITY.fullmatch(str(quantity))
    if not match:
        return Fraction(0)
    number, exponent, suffix = match.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else FACTORS.get(suffix, Fraction(1)))


def quantity(amount: Fraction) -> str:
    """The quantity that stands for a number, rounded up to thousandths."""
    return str(amount) if amount.denominator == 1 else f"{math.ceil(amount * 1000)}m"


def requested(pod: Mapping[str, Any]) -> Amounts:
    """What a pod requests of its node, as its scheduler counts it.

    The containers and sidecars together, or an init container that needs more; and the overhead of the runtime class.
    """
    spec = pod["spec"]
    first = spec.get("initContainers") or ()
    sidecars = [container for container in first if container.get("restartPolicy") == "Always"]
    together = added(_container_requests(container) for container in (*spec["containers"], *sidecars))
    for container in first:
        for name, needed in _container_requests(container).items():
            together[name] = max(together.get(name, Fraction(0)), needed)
    return added((together, _amounts(spec.get("overhead"))))


def added(parts: Iterable[Mapping[str, Fraction]]) -> Amounts:
    """All amounts together, by resource."""
    total: Amounts = {}
    for part in parts:
        for name, more in part.items():
            total[name] = total.get(name, Fraction(0)) + more
    return total


def _container_requests(container: Mapping[str, Any]) -> Amounts:
    """Requests; a limit is a request where there is no other."""
    resources = container.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    return _amounts(resources.get("limits")) | _amounts(resources.get("requests"))


def _amounts(quantities: object) -> Amounts:
    return {str(name): amount(value) for name, value in quantities.items()} if isinstance(quantities, Mapping) else {}
