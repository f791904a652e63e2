"""A script that is part of the image, with a package that the trainer's image does not have."""

import numpy as np
from tqdm import tqdm

import horovodjob_trainer.hvd as hvd

hvd.init()
total = 0.0
for step in tqdm(range(100), disable=hvd.rank() > 0):
    total += float(hvd.allreduce(np.float32(step + hvd.rank()), name="step"))
print(f"rank {hvd.rank()} of {hvd.size()}: {total}")
