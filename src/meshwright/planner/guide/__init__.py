"""The guide's answers in words: what it says, what holds, and where the two differ.

The guide is the parallelism-strategies skill of Megatron Bridge: size tables, topology, sequence length,
minimum GPUs, a memory example, cautions. It is kept as data (`data/guide.json`), beside our corrections.
"""

from meshwright.planner.guide.advise import advise
from meshwright.planner.guide.spec import Advice, GuideQuestion, Section

__all__ = ["Advice", "GuideQuestion", "Section", "advise"]
