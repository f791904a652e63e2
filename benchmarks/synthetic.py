"""Images per second of training steps on a constant random batch, in the form of Horovod's synthetic benchmarks.

    python benchmarks/synthetic.py --model ResNet50 --batch-size 32
    mpirun -np 2 python benchmarks/synthetic.py --model ResNet50 --fp16-allreduce

The program is part of the trainer, so that a HorovodJob can run it: `python -m horovodjob_trainer.synthetic_benchmark`.
"""

import sys

from horovodjob_trainer.synthetic_benchmark import main

if __name__ == "__main__":
    sys.exit(main())
