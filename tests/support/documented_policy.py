"""The NetworkPolicies of the documentation."""

from typing import Any

import yaml

from support.api_client import ROOT, Object


def documented_policy(name: str) -> Object:
    """A NetworkPolicy of docs/operations.md."""
    blocks = (ROOT / "docs" / "operations.md").read_text().split("```yaml\n")[1:]
    policies: list[Any] = [yaml.safe_load(block.partition("```")[0]) for block in blocks]
    return next(policy for policy in policies if policy["metadata"]["name"] == name)
