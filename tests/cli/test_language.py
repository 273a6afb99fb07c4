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
