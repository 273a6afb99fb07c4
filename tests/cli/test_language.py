"""`--lang zh` and MESHWRIGHT_LANG: screens, pages and, where the option is given, texts of JSON."""

import json
import os
import re
import subprocess
import sys

import pytest

WIDE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"(?<![\w\-./=(])(?:[a-z]{2,} ){3,}[a-z]{2,}(?![\w\-./=])")
SCRIPT = """#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py --tensor-model-parallel-size 3 \
--pipeline-model-parallel-size 4 --num-layers 30 --hidden-size 4096 --num-attention-heads 32 \
--seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 130 --bf16
"""


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from meshwright.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "100", "PYTHONUTF8": "1", **env}, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("lang") / "train.sh"
    path.write_text(SCRIPT)
    return str(path)


def test_check_says_its_findings_in_chinese(script):
    done = run("check", script, "--lang", "zh")
    assert done.returncode == 1
    assert "无法被 tp=3 均分（32 % 3 = 2）；最接近：2 或 4 [tp-divides-heads]" in done.stdout
    assert not ENGLISH.search(done.stdout)


def test_a_chinese_and_an_english_check_find_the_same(script):
    english = json.loads(run("check", script, "--json").stdout)
    chinese = json.loads(run("check", script, "--json", "--lang", "zh").stdout)
    plain = [(f["rule"], f["severity"], f["line"]) for f in english["findings"]]
    assert plain == [(f["rule"], f["severity"], f["line"]) for f in chinese["findings"]]
    assert all(WIDE.search(f["message"]) for f in chinese["findings"])


def test_the_environment_changes_screens_and_leaves_json_alone(script):
    assert WIDE.search(run("check", script, MESHWRIGHT_LANG="zh").stdout)
    assert not WIDE.search(run("check", script, "--json", MESHWRIGHT_LANG="zh").stdout)


def said(text: str) -> str:
    """JSON may write letters as escapes."""
    return re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text)


@pytest.mark.parametrize("form", ["sarif", "github"])
def test_annotations_follow_the_option(script, form):
    assert WIDE.search(said(run("check", script, "--format", form, "--lang", "zh").stdout))
    assert not WIDE.search(run("check", script, "--format", form, MESHWRIGHT_LANG="zh").stdout)


@pytest.mark.parametrize(
    "words",
    [
        "advise deepseek-v3 --gpus 256 --tp 2 --pp 16 --ep 64",
        "advise llama3-70b --gpus 64xH100 --seq-length 8192",
        "advise --params-b 30 --active-b 3 --gpus 16 --network ethernet",
        "advise",
        "explain ep-divides-experts",
    ],
)
def test_the_whole_answer_is_in_chinese(words):
    shown = run(*words.split(), "--lang", "zh").stdout
    assert WIDE.search(shown)
    assert not ENGLISH.search(shown)


def test_both_languages_of_advice_have_the_same_figures():
    layout = ["--gpus", "256", "--tp", "2", "--pp", "16", "--ep", "64"]
    words = ["advise", "deepseek-v3", *layout, "--topic", "minimum", "--topic", "data-parallel"]
    english, chinese = run(*words).stdout, run(*words, "--lang", "zh").stdout
    figures = [sorted(re.findall(r"\d+(?:[.,]\d+)*", text)) for text in (english, chinese)]
    assert [n for n in figures[0] if len(n) > 1] == [n for n in figures[1] if len(n) > 1]


@pytest.mark.parametrize("words", [("--lang", "fr"), ("--lang", "")])
def test_an_unknown_language_ends_with_2(words):
    done = run("advise", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "en and zh" in done.stderr


def test_an_unknown_language_of_the_environment_ends_with_2():
    assert run("advise", MESHWRIGHT_LANG="xx").returncode == 2


def test_the_page_is_chinese(tmp_path):
    page = tmp_path / "plan.html"
    done = run("plan", "llama3-8b", "--gpus", "8xH100", "--lang", "zh", "--html", str(page))
    assert done.returncode == 0, done.stderr
    html = page.read_text(encoding="utf-8")
    assert '<html lang="zh-CN">' in html
    words = re.sub(r"(?s)<(script|style|pre|code)\b.*?</\1>", "", html)
    seen = [text.strip() for text in re.findall(r">([^<]+)<", words)]
    sources = re.compile(r"perf_recipes|Megatron-Bridge@|tp \d+  cp")
    foreign = [text for text in seen if ENGLISH.search(text) and not sources.search(text)]
    assert not foreign


def test_the_english_page_and_screen_are_as_they_were(tmp_path):
    page = tmp_path / "plan.html"
    done = run("plan", "llama3-8b", "--gpus", "8xH100", "--lang", "en", "--html", str(page))
    assert '<html lang="en">' in page.read_text(encoding="utf-8")
    assert not WIDE.search(done.stdout)


OPEN = (
    SCRIPT.replace("parallel-size 3", "parallel-size 2")
    .replace("--num-layers 30", "--num-layers $LAYERS")
    .replace("--nnodes=2", "--nnodes=$NNODES")
)
OUT = """[rank3]: Traceback (most recent call last):
  File "megatron/core/models/gpt/gpt_model.py", line 3, in compute_language_model_loss
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 3 has a total capacity \
of 79.11 GiB of which 1.20 GiB is free. Of the allocated memory 60.30 GiB is allocated by PyTorch, \
and 9.10 GiB is reserved by PyTorch but unallocated.
"""


def test_check_says_what_it_needs_in_chinese(tmp_path):
    path = tmp_path / "open.sh"
    path.write_text(OPEN.replace("#SBATCH --nodes=2\n", ""))
    done = run("check", str(path), "--lang", "zh")
    assert "需要  请给出 --env LAYERS=VALUE，用于 num_layers" in done.stdout
    assert "请给出 --env NNODES=VALUE，用于节点数" in done.stdout
    assert not ENGLISH.search(done.stdout)


def test_a_checkpoint_under_another_layout_is_judged_in_chinese(script, tmp_path):
    new = tmp_path / "new.sh"
    new.write_text(SCRIPT.replace("parallel-size 3", "parallel-size 2").replace("layers 30", "layers 32"))
    done = run("check", "--resume-from", script, str(new), "--lang", "zh")
    assert done.returncode == 1
    assert "错误   num_layers 原为 30，现为 32：权重的形状不同" in done.stdout
    assert not ENGLISH.search(done.stdout)
    answer = json.loads(run("check", "--resume-from", script, str(new), "--lang", "zh", "--json").stdout)
    assert all(WIDE.search(finding["message"]) for finding in answer["findings"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("plan llama3-8b --gpus 8,16xH100", "16 个 GPU\n"),
        ("plan llama3-8b --gpus 8xH100 --why-not tp=2,pp=2,mbs=1", "个中排第"),
        ("fit llama3-8b --gpus 8xH100 --longest-sequence", "8 x H100-80GB-SXM 上 llama-3-8b 的最长序列："),
        ("fit llama3-8b --gpus 8xH100 --largest-micro-batch", "上 llama-3-8b 的最大微批次："),
    ],
)
def test_sweeps_places_and_the_most_that_fits_are_said_in_chinese(words, says):
    done = run(*words.split(), "--lang", "zh")
    assert says in done.stdout
    assert not ENGLISH.search(done.stdout)


def test_an_out_of_memory_error_is_explained_in_chinese(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(OUT)
    done = run("oom", str(log), "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--lang", "zh")
    assert "内存不足（OOM）：损失计算（rank 3, GPU 3）" in done.stdout.replace(" (", "（").replace(
        "3)", "3）"
    )
    assert "碎片：torch 预留了 9.1 GiB 但没有张量使用，且每块都太小" in done.stdout
    assert not ENGLISH.search(done.stdout)
    causes = json.loads(run("oom", str(log), "--lang", "zh", "--json").stdout)["causes"]
    assert all(WIDE.search(cause) for cause in causes)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("plan nope --gpus 8xH100", "错误：目录中没有模型 'nope'"),
        (
            "plan llama3-8b --gpus 12xH100",
            "错误：12 个 GPU 不能填满每节点 8 个 GPU 的节点；最接近的可行值：8 或 16",
        ),
        ("plan llama3-8b --gpus 8xH100 --task train", "已知：pretrain, sft, lora, rl"),
        ("plan llama3-8b --gpus 8xH100 --cluster /none.yaml", "错误：无法读取 /none.yaml：没有该文件或目录"),
        ("fit llama3-8b", "错误：请指明 GPU 种类：--gpu H100"),
        ("estimate llama3-8b --gpus 8xH100 --offload 3", "错误：优化器的卸载比例为 3.0；应在 0 和 1 之间"),
        ("advise --params-b 7 --active-b 12 --gpus 8", "错误：12B 激活参数多于总参数 7B"),
        ("check /none.sh", "错误：/none.sh：没有该文件或目录"),
        ("explain tp-divides-head", "错误：没有规则 'tp-divides-head'；是否指 tp-divides-heads"),
    ],
)
def test_an_error_is_said_in_chinese(words, says):
    done = run(*words.split(), "--lang", "zh")
    assert done.returncode == 2
    assert says in done.stderr
    assert says in run(*words.split(), MESHWRIGHT_LANG="zh").stderr


def test_a_language_that_is_not_spoken_is_an_english_error():
    assert run("plan", "llama3-8b", "--gpus", "8xH100", "--lang", "fr").stderr.startswith(
        "error: --lang fr: "
    )
