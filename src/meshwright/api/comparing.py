"""`compare`, `resume`, `rescale`: two configs beside each other, and one on other GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from meshwright.cluster.parse import parse_cluster, parse_gpu_count
from meshwright.errors import QuestionError
from meshwright.frameworks.compare import Comparison
from meshwright.frameworks.compare import compare as compare_readings
from meshwright.frameworks.read import Given, read_file, read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.rescale import Batch, Rescaled
from meshwright.frameworks.rescale import rescale as rescale_reading
from meshwright.frameworks.resume import Resume
from meshwright.frameworks.resume import resume as resume_readings


def compare(left: str | Path, right: str | Path, environment: Mapping[str, str] | None = None) -> Comparison:
    """Two launch scripts or configs side by side: what differs, and what it costs."""
    return compare_readings(one_run(left, environment), one_run(right, environment))


def compare_texts(left: tuple[str, str], right: tuple[str, str]) -> Comparison:
    """The same for two texts, each with its name (whose suffix tells its kind); no file is opened."""
    one, two = (_only_run(read_text(text, name), name) for text, name in (left, right))
    return compare_readings(one, two)


def resume(old: str | Path, new: str | Path, environment: Mapping[str, str] | None = None) -> Resume:
    """Whether the run of `new` can go on from the checkpoint of `old`, and what reshards."""
    return resume_readings(one_run(old, environment), one_run(new, environment))


def rescale(
    file: str | Path, gpus: str | int, *, batch: Batch = "hold", environment: Mapping[str, str] | None = None
) -> Rescaled:
    """A launch script or config on another number of GPUs, every product kept legal."""
    reading = one_run(file, environment)
    if isinstance(gpus, int) or gpus.strip().isdigit():
        return rescale_reading(reading, parse_gpu_count(str(gpus)), batch=batch)
    cluster = parse_cluster(gpus)
    return rescale_reading(
        reading, cluster.world, gpus_per_node=cluster.gpus_per_node, batch=batch, gpu=cluster.gpu.name
    )


def one_run(
    file: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[int, str] | None = None,
) -> Reading:
    """The one run that a file describes; QuestionError where it describes several."""
    given = Given(environment=environment or {}, arguments=arguments or {})
    return _only_run(read_file(Path(file), given), str(file))


def _only_run(readings: Sequence[Reading], file: str) -> Reading:
    if len(readings) != 1:
        labels = ", ".join(reading.label or "?" for reading in readings)
        raise QuestionError(f"{file} describes {len(readings)} runs ({labels}); one is needed here")
    return readings[0]
