"""Loads the data sets DIRECTORY/NAME-RANK with all ranks, and writes what each rank has found to found-RANK.json."""

import json
import sys
from pathlib import Path
from typing import Any

from horovodjob_trainer import data, hvd
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.run.ranks import loading_ranks

hvd.init()
directory = Path(sys.argv[1])
found: dict[str, Any] = {}
for name in sys.argv[2:]:
    log: list[str] = []
    request = data.Request(
        dataset=name.partition("_")[0], path=directory / f"{name}-{hvd.rank()}", cache="none", image_size=24
    )
    try:
        dataset = data.load_dataset(request, loading_ranks(Launch(), log.append))
        found[name] = {"fingerprint": dataset.fingerprint, "samples": dataset.train.samples, "log": log}
    except DataError as error:
        found[name] = {"error": str(error)}
(directory / f"found-{hvd.rank()}.json").write_text(json.dumps(found))
