"""What unequal packs cost: packs of the same number of tokens hold samples of other lengths, and so do
more or less attention; ranks that meet wait for the one with most.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from meshwright.cost.gradients import flags
from meshwright.job.spec import Job
from meshwright.layout.table import Floats, LayoutTable


def attention_spread(job: Job, tokens: Floats) -> Floats:
    """Standard deviation of a pack's attention over its mean, for packs of `tokens` tokens. [...]

    Samples of length l come in random order until the pack is full. Their number is not free, since their
    lengths add up to the pack: sum(l^2) varies as sum(l^2 - r*l), r = E[l^2]/E[l], over S/E[l] samples.
    Source: the central limit theorem for renewal-reward processes.
    """
    if len(job.packing) < 2:
        return np.zeros_like(tokens)
    length = np.array([size for size, _ in job.packing], dtype=float)
    samples = np.array([share for _, share in job.packing]) / length  # shares are of tokens
    samples = samples / samples.sum()
    mean, square = (samples * length).sum(), (samples * length**2).sum()
    ratio = square / mean
    variance = (samples * (length**2 - ratio * length) ** 2).sum() * tokens / mean
    return np.asarray(np.sqrt(variance) / (ratio * tokens))


def most_of(number: Floats) -> Floats:
    """Expected largest of `number` standard normal values, about (Blom 1958). [...]

    >>> [round(float(x), 2) for x in most_of(np.array([1.0, 2.0, 64.0]))]
    [0.0, 0.59, 2.39]
    """
    inverse = NormalDist().inv_cdf
    distinct, where = np.unique(np.maximum(number, 1.0), return_inverse=True)
    values = np.array([inverse((n - 0.375) / (n + 0.25)) if n > 1 else 0.0 for n in distinct])
    return np.asarray(values[where].reshape(np.shape(number)))


def packs_wait(job: Job, table: LayoutTable, attention: Floats, moe: bool) -> Floats:
    """Seconds a step that ranks wait for the one whose packs hold most attention. [N]

    attention  seconds of attention of the average stage for one micro-batch, forward and backward [N]

    Replicas that meet at every layer (FSDP, or the ranks of an expert group) wait in every micro-batch;
    all of them at the end of a step, when random packs have evened out by the root of their number; and
    filling and draining a pipeline takes as long as its longest micro-batch.
    """
    if len(job.packing) < 2:
        return np.zeros(len(table))
    spread = attention_spread(job, np.asarray(table.mbs * job.seq_length, dtype=float))
    length, share = (np.array(side, dtype=float) for side in zip(*job.packing, strict=True))
    heaviest = length.max() / (share * length).sum() - 1.0  # a pack full of the longest samples

    def beyond(number: Floats) -> Floats:
        """Attention of the heaviest of so many packs beyond the mean one [s]."""
        return np.asarray(np.minimum(most_of(number) * spread, heaviest) * attention)

    micro = table.num_microbatches.astype(float)
    grid = table.tp * table.cp
    together = np.clip(table.ep * table.etp / grid, 1, table.dp) if moe else np.ones(len(table))
    together = np.where(flags(table, lambda e: e.fsdp), table.dp, together)
    each = micro * beyond(together)
    step = np.sqrt(micro) * beyond(table.dp / together)
    fill = (table.pp - 1) / table.vpp * beyond(micro)
    return np.asarray(each + step + fill)
