"""The resource requests of pods, and the quantities of Kubernetes."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

Amounts = dict[str, Fraction]
# A number with a longer exponent is no realistic amount, and would need all of the memory.
QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
FACTORS = {
    **{
        suffix: Fraction(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}


def parse_quantity(quantity: object) -> Fraction:
    """The value of a quantity; 0 for an invalid one, because the API server refuses its pod."""
    match = QUANTITY.fullmatch(str(quantity))
    if not match:
        return Fraction(0)
    number, exponent, suffix = match.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else FACTORS.get(suffix, Fraction(1)))


def format_quantity(amount: Fraction) -> str:
    """The quantity with a value, rounded up to thousandths."""
    return str(amount) if amount.denominator == 1 else f"{math.ceil(amount * 1000)}m"


def pod_requests(pod: Mapping[str, Any]) -> Amounts:
    """The resource requests of a pod, as the scheduler computes them.

    For each resource the larger one of the sum of containers and sidecars and the largest init container, plus the
    overhead of the runtime class.
    """
    return total((_pod_amounts(pod, _container_requests), _amounts(pod["spec"].get("overhead"))))


def pod_limits(pod: Mapping[str, Any]) -> Amounts:
    """The limits of a pod, computed as its requests."""
    limits = _pod_amounts(pod, _container_limits)
    overhead = _amounts(pod["spec"].get("overhead"))
    return total((limits, {name: amount for name, amount in overhead.items() if name in limits}))


def _pod_amounts(pod: Mapping[str, Any], of_container: Callable[[Mapping[str, Any]], Amounts]) -> Amounts:
    spec = pod["spec"]
    init_containers = spec.get("initContainers") or ()
    sidecars = [container for container in init_containers if container.get("restartPolicy") == "Always"]
    amounts = total(of_container(container) for container in (*spec["containers"], *sidecars))
    for container in init_containers:
        for name, amount in of_container(container).items():
            amounts[name] = max(amounts.get(name, Fraction(0)), amount)
    return amounts


def total(parts: Iterable[Mapping[str, Fraction]]) -> Amounts:
    """The sum of amounts, by resource."""
    amounts: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            amounts[name] = amounts.get(name, Fraction(0)) + amount
    return amounts


def _container_requests(container: Mapping[str, Any]) -> Amounts:
    """The requests; a limit without a request is a request too."""
    resources = container.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    return _amounts(resources.get("limits")) | _amounts(resources.get("requests"))


def _container_limits(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources")
    return _amounts(resources.get("limits")) if isinstance(resources, Mapping) else {}


def _amounts(quantities: object) -> Amounts:
    return (
        {str(name): parse_quantity(value) for name, value in quantities.items()}
        if isinstance(quantities, Mapping)
        else {}
    )
