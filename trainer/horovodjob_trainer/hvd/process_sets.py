"""The ranks that take part in a collective operation, and how Horovod matches the operations of the ranks."""

import os
from typing import Any

from horovodjob_trainer.hvd.exchange import exchange

# Horovod matches the operations of the ranks by name. Name scopes contain counters of functions and graphs: a rank that
# has traced one more function than the others would wait indefinitely.
UNSCOPED = {"ignore_name_scope": True}


def is_elastic() -> bool:
    """Whether the number of ranks can change during the life of this process."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def process_set_size(process_set: Any) -> Any:
    """Number of ranks in a process set; with elastic a tensor, because a traced function is reused after a change."""
    if is_elastic():
        return exchange.size_op(process_set_id=process_set.process_set_id)
    return process_set.size()


def ranks_per_node(process_set: Any) -> int:
    """Number of ranks on each node of a job with several nodes; 1 if it can change or differs between the nodes."""
    if is_elastic() or process_set is not exchange.global_process_set or not exchange.is_homogeneous():
        return 1
    return int(exchange.local_size()) if exchange.local_size() < exchange.size() else 1
