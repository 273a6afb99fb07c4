"""Hostile templates, remote commands and Python: an answer within seconds, nothing run."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from meshwright.errors import QuestionError
from meshwright.frameworks.check import check_readings
from meshwright.frameworks.read import read_text

RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4\n"
SEDS = (
    "echo " + "a" * 40 + "! | sed 's/\\(a*\\)*b/x/'\n",
    "echo " + "a" * 20000 + " | sed 's/a.*a.*b/x/g'\n",
    "echo " + "a" * 20000 + " | sed 's/a.*b/x/g'\n",
    "echo " + "a" * 1900 + " | sed -e 's/a.*b/x/g' -e 's/[a-z]*b/x/g'\n",
    "cat <<'E' | sed "
    + " ".join("-e 's/a/aa/g'" for _ in range(40))
    + " > x.sh\n"
    + "a" * 50
    + "\nE\nbash x.sh\n",
    "sed -i 's/x/y/' /etc/passwd\nsed 's/[/x/' <<< abc\nsed 's/a/b\nsed\nsed -e\n",
    "cat <<'E' > a.sh\ncat a.sh | bash\nE\nbash < a.sh\n",
    "ssh a ssh b ssh c 'ssh d \"bash -s\"'\nssh\npdsh -w\nbash -s <<< 'bash -s <<< x'\n",
)


@pytest.mark.parametrize("script", SEDS)
def test_scripts(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    with suppress(QuestionError):
        check_readings(read_text(script + RUN, "x.sh"))
    assert time.monotonic() - started < 8
    assert list(tmp_path.iterdir()) == []  # nothing was run


PYTHON = (
    "cfg.model.num_layers = " + "1 + " * 3000 + "1\n",
    "cfg.model.num_layers = " + "(" * 90 + "1" + ")" * 90 + "\n",
    "x = [1] * 9999\ny = x * 9999\nz = y * 9999\ncfg.model.num_layers = len(z)\n",
    "a = 'x' * 10\nb = a + a\n" + "b = b + b\n" * 60 + "cfg.model.num_layers = len(b)\n",
    "if x:\n    cfg.model.num_layers = 1\n" + "elif y:\n    cfg.model.num_layers = 2\n" * 400,
    "cfg.model.num_layers = 1 / 0\ncfg.model.hidden_size = 2 ** 10 ** 10\nint('9' * 10000)\n",
    "m = m.m\nm.model.num_layers = 3\na = b.c\nb = a.c\na.model.num_layers = 4\n",
    "setattr(setattr, 'x', 1)\nsetattr(cfg.model, 'num_layers', __import__('os').system('touch ran'))\n",
)


@pytest.mark.parametrize("text", PYTHON)
def test_python(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    with suppress(QuestionError):
        check_readings(read_text(text, "x.py"))
    assert time.monotonic() - started < 8
    assert list(tmp_path.iterdir()) == []  # nothing was run
