"""Parameters of every rank: our count against the model that Megatron Core builds for that rank."""

from __future__ import annotations

import random

import pytest

from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.model.spec import Model
from meshwright.verify.parameters import differences, own_counts
from meshwright.verify.process import EngineError, EngineProcess
from meshwright.verify.subject import Subject, placed

pytestmark = pytest.mark.engine

MODELS = [
    "deepseek-v3",
    "deepseek-v2-lite",
    "kimi-k2",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "glm-4.5-355b-a32b",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "llama-3-8b",
    "llama-3-70b",
    "llama-3.2-1b",
    "llama-4-scout-17b-16e",
    "qwen2.5-0.5b",
    "qwen2.5-72b",
    "qwen2-57b-a14b",
    "gemma-2-9b",
    "gemma-3-1b",
    "gpt3-175b",
    "moonlight-16b-a3b",
    "ling-mini-2.0-16b",
    "mistral-7b-v0.1",
    "qwen3-next-80b-a3b",
    "nemotron-h-8b",
]
LAYOUTS_EACH = 12


@pytest.mark.parametrize("name", MODELS)
def test_every_rank_holds_what_we_count(engine: EngineProcess, name: str) -> None:
    model = catalog.find(name)
    compared = 0
    for subject in random_subjects(model, random.Random(name), LAYOUTS_EACH):
        rank = random.Random(subject.world).randrange(subject.world)
        (built,) = engine.ask("parameters", ranks=[rank], **subject.config().request())
        pipeline = subject.pipeline()
        assert pipeline is not None
        assert differences(own_counts(subject, pipeline)[built["pp"]], built) == [], str(subject.layout)
        compared += 1
    assert compared == LAYOUTS_EACH


@pytest.mark.parametrize(
    ("name", "layout", "pipeline", "world", "stages"),
    [
        ("deepseek-v3", Layout(tp=2, pp=16, ep=64, sp=True), "Et*4|(t*4|)*14tmL", 2048, 16),
        ("deepseek-v3", Layout(tp=1, pp=8, vpp=4, ep=64), "Et|(tt|)*30mL", 512, 8),
        ("llama-3-70b", Layout(tp=8, pp=4, vpp=5, sp=True), None, 64, 4),
        ("llama-3.2-1b", Layout(pp=4), None, 8, 4),
        ("kimi-k2", Layout(tp=2, pp=16, ep=32, sp=True), "Et*4|(t*4|)*14tL", 1024, 16),
    ],
)
def test_all_stages_of_a_plan(
    engine: EngineProcess, name: str, layout: Layout, pipeline: str | None, world: int, stages: int
) -> None:
    model = catalog.find(name)
    chosen = PipelineLayout.parse(pipeline, layout.pp) if pipeline else None
    subject = Subject(model=model, layout=layout, world=world, placement=placed(model, layout, chosen))
    ranks = [stage * (world // layout.pp) for stage in range(stages)]
    built = engine.ask("parameters", ranks=ranks, **subject.config().request())
    split = subject.pipeline()
    assert split is not None
    own = own_counts(subject, split)
    assert [differences(own[rank["pp"]], rank) for rank in built] == [[]] * stages


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Sum of the tensors in the published safetensors headers.
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-30b-a3b", 30_532_122_624),
    ],
)
def test_one_rank_holds_the_published_total(engine: EngineProcess, name: str, published: int) -> None:
    """On one rank without padding the engine builds exactly the published checkpoint."""
    subject = Subject(model=catalog.find(name), layout=Layout(), world=1)
    request = subject.config().request()
    request["model"]["vocab_size"] = subject.model.vocab_size
    (built,) = engine.ask("parameters", ranks=[0], **request)
    assert sum(chunk["dense"] + chunk["expert"] for chunk in built["chunks"]) == published


def test_latent_down_projections_are_whole_on_every_tensor_rank(engine: EngineProcess) -> None:
    """Transformer Engine's rule: hidden -> ranks is duplicated, ranks -> heads is divided."""
    model = catalog.find("deepseek-v3")
    parts = {}
    for tp in (1, 2):
        subject = Subject(model=model, layout=Layout(tp=tp, ep=64, sp=tp > 1), world=64)
        (built,) = engine.ask("parameters", ranks=[0], **subject.config().request())
        parts[tp] = built["chunks"][0]["parts"]["decoder.layers.0.self_attention"][0]
    down = 7168 * (1536 + 512 + 64)
    divided = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    norms = 1536 + 512
    assert parts == {1: down + divided + norms, 2: down + divided // 2 + norms}


def test_balancing_biases_are_buffers(engine: EngineProcess) -> None:
    subject = Subject(model=catalog.find("deepseek-v3"), layout=Layout(ep=64), world=64)
    (built,) = engine.ask("parameters", ranks=[0], **subject.config().request())
    assert built["chunks"][0]["buffers"] == 256 * 59  # 58 MoE layers and the MTP module


def test_the_engine_gives_its_own_reason(engine: EngineProcess) -> None:
    subject = Subject(model=catalog.find("llama-3-8b"), layout=Layout(tp=3, sp=True), world=48)
    with pytest.raises(EngineError, match=r"num_attention_heads \(32\) must be a multiple") as error:
        engine.ask("parameters", ranks=[0], **subject.config().request())
    assert (error.value.kind, error.value.where.split(":")[0]) == ("ValueError", "transformer_config.py")


def random_subjects(model: Model, rng: random.Random, count: int) -> list[Subject]:
    """Layouts that keep to the rules of this model, on one to three times the smallest world."""
    hybrid = any(kind.ffn is None for kind in model.kinds)
    linear = model.name.startswith("qwen3-next")
    found: list[Subject] = []
    while len(found) < count:
        tp, pp = rng.choice(heads_divide(model)), rng.choice([1, 2, 4, 8])
        vpp = rng.choice([1, 1, 2, 3]) if pp > 1 and not hybrid else 1
        ep = rng.choice(expert_degrees(model))
        etp = rng.choice([1, 1, 2]) if model.is_moe and "gpt-oss" not in model.name else 1
        cp = 1 if linear else rng.choice([1, 2])
        layout = Layout(tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, etp=etp, sp=tp > 1)
        even = model.num_layers % (pp * vpp) == 0
        subject = Subject(
            model=model,
            layout=layout,
            world=layout.min_gpus * rng.randint(1, 3),
            placement=placed(model, layout),
        )
        if (even or not hybrid) and subject.pipeline() is not None:
            found.append(subject)
    return found


def expert_degrees(model: Model) -> list[int]:
    """Expert degrees that divide the experts and leave a rank at most 64 (more take long to build)."""
    if not model.is_moe:
        return [1]
    experts = model.num_experts
    return [ep for ep in (1, 2, 4, 8, 16, 64) if experts % ep == 0 and experts // ep <= 64]


def heads_divide(model: Model) -> list[int]:
    """Tensor degrees that the attention heads allow."""
    degrees = []
    for tp in (1, 2, 4, 8):
        mixers = [kind.mixer for kind in model.kinds if kind.mixer is not None]
        heads = [getattr(mixer, "heads", 0) or getattr(mixer, "k_heads", 8) for mixer in mixers]
        groups = [getattr(mixer, "kv_heads", 8) for mixer in mixers]
        if all(h % tp == 0 for h in heads) and all(g % tp == 0 or tp % g == 0 for g in groups):
            degrees.append(tp)
    return degrees
