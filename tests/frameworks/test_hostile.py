# ruff: noqa: E501 - a hostile script stays on one line
"""Bad, huge and hostile input: an answer within seconds, no traceback, nothing run, nothing written."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.errors import QuestionError
from meshwright.frameworks.check import Report, check_readings
from meshwright.frameworks.read import read_command, read_file, read_text

DATA = Path(__file__).parent / "data"
LAUNCH = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 4\n"
SECONDS = 12.0
"""A budget is 5 s of evaluation and 2 s of parsing a script; twice that for a busy machine."""


def answer(text: str, name: str = "x.sh") -> Report | str:
    """What `check` says: a report, or a sentence; anything else fails the test."""
    started = time.monotonic()
    try:
        report: Report | str = check_readings(read_text(text, name))
        assert isinstance(report, Report)
        json.dumps(report.as_dict())
    except QuestionError as problem:
        report = str(problem)
        assert len(report) < 2000
    assert time.monotonic() - started < SECONDS
    return report


SCRIPTS = {
    "endless loop": "while true; do x=$((x+1)); done\n" + LAUNCH,
    "endless launches": "while true; do " + LAUNCH + "done\n",
    "fork bomb": ":(){ :|:& };:\n" + LAUNCH,
    "function recursion": "f() { f; f; }; f\n" + LAUNCH,
    "doubling": "a=xxxxxxxx\n" + "a=$a$a\n" * 60 + LAUNCH,
    "doubling array": "A=(1 2)\n" + 'A+=("${A[@]}")\n' * 40 + LAUNCH,
    "doubling in a loop": "a=x; for i in {1..500}; do a=$a$a; done\n" + LAUNCH,
    "brace bomb": "echo {1..999999}{1..999999}\n" + LAUNCH,
    "eval of itself": 'x=\'eval "$x"\'; eval "$x"\n' + LAUNCH,
    "many branches": "".join(f"if [ $V{i} = 1 ]; then A{i}=1; else A{i}=2; fi\n" for i in range(400))
    + LAUNCH,
    "nested branches": "if unknown_command; then\n" * 60 + ":\n" + "fi\n" * 60 + LAUNCH,
    "exponential branches": "f0() { x=1; }\n"
    + "".join(f"f{i}() {{ if a; then f{i - 1}; else f{i - 1}; fi; }}\n" for i in range(1, 40))
    + "f39\n"
    + LAUNCH,
    "power": "x=$((9**999999999)); y=$((1<<99999999999)); z=$((1/0))\n" + LAUNCH,
    "deep sum": "x=$((" + "(" * 5000 + "1" + ")" * 5000 + "))\n" + LAUNCH,
    "long sum": "x=$((" + "1+" * 200000 + "1))\n" + LAUNCH,
    "deep substitution": "x=" + "$(" * 3000 + ":" + ")" * 3000 + "\n" + LAUNCH,
    "deep parameters": "x=" + "${a:-" * 3000 + "}" * 3000 + "\n" + LAUNCH,
    "unclosed arrays": "A=(" * 30000,
    "unclosed quotes": '"$(' * 20000,
    "unclosed tests": "[[ (" * 20000,
    "regex": "s=" + "a" * 120 + "; [[ $s =~ ^(a+)+$ ]]; [[ $s =~ a*a*a*a*a*a*a*b ]] && x=1\n" + LAUNCH,
    "pattern": "s="
    + "a" * 4000
    + "; echo ${s//*a*a*a*a*b/x} ${s##*a*a*a*b}; case $s in *a*a*a*a*a*b) :;; esac\n"
    + LAUNCH,
    "many heredocs": "".join(f"cat <<E{i}\nx\nE{i}\n" for i in range(3000)) + LAUNCH,
    "long delimiter": "cat <<" + "A" * 100000 + "\nx\n" + "A" * 100000 + "\n" + LAUNCH,
    "control characters": "\x00\x01\x02\x7f\x1b[31m" * 2000 + LAUNCH,
    "private use": "x=\U000f0000\U000f0001; echo $x\n" + LAUNCH + "\U000fffff" * 1000,
    "long line": "torchrun pretrain_gpt.py " + "--num-layers 4 " * 50000,
    "huge numbers": LAUNCH.replace("--num-layers 4", "--num-layers " + "9" * 4000),
    "odd numbers": LAUNCH.replace("--num-layers 4", "--num-layers -3 --seq-length 0 --hidden-size 1e9"),
    "zero degrees": "torchrun --nproc_per_node 0 pretrain_gpt.py --tensor-model-parallel-size 0 "
    "--pipeline-model-parallel-size -2 --micro-batch-size 0 --global-batch-size 0 --num-layers 0\n",
    "huge degrees": "torchrun --nnodes 999999999999 --nproc_per_node 999999999999 pretrain_gpt.py "
    "--tensor-model-parallel-size 99999999999999999 --num-layers 99999999999999 --num-experts 9999999999999\n",
    "layer list": "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --moe-layer-freq '[0]*99999+[1]*99999'\n",
    "layout bomb": "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --pipeline-model-parallel-size 2 "
    "--pipeline-model-parallel-layout '" + "(" * 300 + "t*9" + "*9)" * 300 + "'\n",
    "only quotes": "'" * 99999,
    "empty": "",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_hostile_scripts_end_in_an_answer(name: str) -> None:
    answer(SCRIPTS[name])


DOCUMENTS = {
    "billion laughs.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefghij", "bcdefghijk", strict=True)
    ),
    "deep flow.yaml": "[" * 50000,
    "deep braces.yaml": "{a: " * 20000,
    "deep block.yaml": "".join(" " * i + f"a{i}:\n" for i in range(700)),
    "dashes.yaml": "- " * 50000,
    "python tags.yaml": "model: !!python/object/apply:os.system ['touch pwned']\ntrainer: {devices: 8}\n",
    "tabs.yaml": "\t\t: \t- \n" * 1000,
    "cycle.yaml": "model:\n  tensor_model_parallel_size: ${model.a}\n  a: ${model.b}\n  b: ${model.a}\ntrain: {micro_batch_size: 1}\n",
    "doubling placeholders.yaml": "model:\n  tensor_model_parallel_size: 1\ntrain: {x: 1}\na0: xxxxxxxx\n"
    + "".join(f"a{i}: ${{a{i - 1}}}${{a{i - 1}}}\n" for i in range(1, 60)),
    "huge scalar.yaml": "model: {num_layers: " + "9" * 100000 + "}\ntrain: {micro_batch_size: 1}\n",
    "self alias.yaml": "a: &a {b: *a}\n",
    "many documents.yaml": "---\na: 1\n" * 5000,
    "kind.yaml": "apiVersion: v1\nkind: PyTorchJob\nspec: [1, 2, {a: b}]\n",
    "deep.json": "[" * 100000,
    "deep objects.json": '{"a":' * 100000,
    "deep.toml": "a = " + "[" * 5000,
    "parallelism.toml": "[parallelism]\ntensor_parallel_degree = 0\ncontext_parallel_degree = -7\n[training]\nseq_len = 7\n",
    "deep.py": "x = " + "(" * 5000 + ")" * 5000,
    "deep attribute.py": "cfg.model" + ".x" * 20000 + " = 1\n",
    "big power.py": "cfg.model.num_layers = 10 ** 10 ** 10\ncfg.model.x = 'a' * 10 ** 10\ncfg.model.y = [0] * 10 ** 10\n",
    "long sum.py": "cfg.model.num_layers = " + "1+" * 50000 + "1\n",
    "nul.py": "cfg.model.num_layers = 4\x00\n",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_hostile_documents_end_in_an_answer(name: str) -> None:
    answer(DOCUMENTS[name], name)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    big = tmp_path / "big.sh"
    with big.open("wb") as handle:
        handle.truncate(100 * 1024 * 1024)
    binary = tmp_path / "binary.sh"
    binary.write_bytes(bytes(range(256)) * 100)
    pipe = tmp_path / "pipe.sh"
    os.mkfifo(pipe)
    loop = tmp_path / "loop.sh"
    loop.symlink_to(loop)
    cases = [
        big,
        binary,
        pipe,
        loop,
        tmp_path,
        tmp_path / "missing.sh",
        Path("/dev/zero"),
        Path("/dev/null/x"),
    ]
    for path in cases:
        started = time.monotonic()
        with pytest.raises(QuestionError):
            read_file(path)
        assert time.monotonic() - started < 2


def test_sourcing_ends(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("source b.sh\n" + LAUNCH)
    (tmp_path / "b.sh").write_text("source a.sh; bash a.sh; . ./a.sh\n")
    started = time.monotonic()
    readings = read_file(tmp_path / "a.sh")
    assert readings
    assert time.monotonic() - started < SECONDS


def test_sourcing_stays_near_the_script(tmp_path: Path) -> None:
    home = tmp_path / "one" / "two" / "scripts"
    home.mkdir(parents=True)
    (tmp_path / "secret.sh").write_text("TP=8\n")
    (home / "run.sh").write_text(
        "source ../../../secret.sh; source /etc/passwd; source /dev/zero; . /proc/self/environ\n"
        'torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --tensor-model-parallel-size "${TP:-2}"\n'
    )
    (reading,) = read_file(home / "run.sh")
    assert reading.get("tensor_model_parallel_size") == 2


EXECUTING = """
touch pwned1; $(touch pwned2); `touch pwned3`; eval "touch pwned4"; bash -c 'touch pwned5'
x=$(rm -rf "$PWD"; echo 4); cat > pwned6 <<EOF
hello
EOF
echo hi > pwned7; echo hi >> pwned8; tee pwned9 <<< x; mkdir pwned10; source <(touch pwned11)
python3 -c "open('pwned12','w')"; exec 3> pwned13; : > pwned14; trap 'touch pwned15' EXIT
declare -i n='a[$(touch pwned16)]'; (( b[$(touch pwned17)] )); [[ -v 'c[$(touch pwned18)]' ]]
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $(touch pwned19; echo 4) --tensor-model-parallel-size 2
"""


def test_nothing_is_run_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "x.sh"
    script.write_text(EXECUTING)
    (tmp_path / "x.py").write_text("import os\nos.system('touch pwned20')\ncfg.model.num_layers = 4\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a program was started: {args}")

    for name in ("system", "popen", "execv", "execve", "fork", "posix_spawn"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)
    (reading,) = read_file(script)
    assert reading.get("num_layers") == 4
    read_file(tmp_path / "x.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


CORPUS = [
    (path.read_text(), path.name)
    for path in sorted(DATA.iterdir())
    if path.is_file() and path.suffix != ".csv"
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_files_never_raise(data: st.DataObject) -> None:
    text, name = data.draw(st.sampled_from(CORPUS))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        size = data.draw(st.integers(0, 40))
        insert = data.draw(
            st.sampled_from(
                [
                    "",
                    "$",
                    "(",
                    ")",
                    '"',
                    "'",
                    "`",
                    "{",
                    "}",
                    "[",
                    "0",
                    "-1",
                    "\n",
                    "\\",
                    "<<E",
                    "&&",
                    "ARGS",
                    "${X",
                    ": ",
                    "*a",
                    "\t",
                ]
            )
        )
        text = text[:at] + insert + text[at + size :]
    answer(text, name)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(max_size=300), suffix=st.sampled_from([".sh", ".yaml", ".toml", ".py", ".json", ".sbatch"])
)
def test_random_text_never_raises(text: str, suffix: str) -> None:
    answer(text, "x" + suffix)


WORDS = st.lists(
    st.sampled_from(["torchrun", "srun", "python", "-m", "--", "-c", "pretrain_gpt.py", "bash", "env", "A=1", "--nnodes", "2",
                     "--nproc_per_node=8", "--tensor-model-parallel-size", "x", "model.a=1", "--recipe", "", "-N", "ray", "job",
                     "submit", "uv", "run", "mpirun", "-np", "x.sh", "$(x)", "'"]),
    max_size=14,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(words=WORDS)
def test_random_commands_never_raise(words: list[str]) -> None:
    try:
        json.dumps(check_readings(read_command(words)).as_dict())
    except QuestionError:
        return
