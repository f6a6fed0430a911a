"""Pure functions in many processes: each works on its shard, results are averaged.

``paddle.distributed`` starts and connects the processes (gloo on CPU, NCCL on GPU):

    python -m paddle.distributed.launch --nproc_per_node 4 train.py

Every call here is made by all ranks, in the same order. In a single process all of them
work too, and communicate with nobody.
"""

from .averages import average
from .broadcasts import broadcast
from .checkpoints import load_checkpoint, save_checkpoint
from .gradients import value_and_grad
from .processes import rank, size, start
from .rounds import RankError
from .shards import seed, shard

__all__ = [
    "RankError",
    "average",
    "broadcast",
    "load_checkpoint",
    "rank",
    "save_checkpoint",
    "seed",
    "shard",
    "size",
    "start",
    "value_and_grad",
]
