"""Shell habits of launch scripts: bash itself says what each of them hands to a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from meshwright.frameworks.shell import awk
from meshwright.frameworks.shell.evaluate import Shell
from meshwright.frameworks.shell.files import Files
from meshwright.frameworks.shell.script import text_of_file
from meshwright.frameworks.shell.state import State

IDIOMS = (Path(__file__).parent / "data" / "idioms.txt").read_text().rstrip("\n").split("\n\n")
PROGRAM = "echo2"
TOOLS = ("bc", "awk", "python3", "envsubst", "paste", "expr")
STAND_IN = '#!/bin/bash\nprintf "%s\\0" "$@" >> "$RECORD"\nprintf "\\1" >> "$RECORD"\n'


def evaluated(source: str, folder: Path) -> Shell:
    shell = Shell(Files(folder), State())
    shell.run_file("s.sh", text_of_file(source + "\n", "s.sh"))
    return shell


def by_bash(source: str, folder: Path) -> list[list[str]]:
    """Arguments of every call of the stand-in program."""
    work, programs, record = folder / "work", folder / "bin", folder / "record"
    work.mkdir()
    programs.mkdir()
    record.touch()
    (programs / PROGRAM).write_text(STAND_IN)
    (programs / PROGRAM).chmod(0o755)
    (work / "s.sh").write_text(source + "\n")
    subprocess.run(
        ["bash", "s.sh"], cwd=work, capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "RECORD": str(record), "HOME": str(folder)},
    )  # fmt: skip
    return [run.split("\0")[:-1] for run in record.read_bytes().decode().split("\1")[:-1]]


@pytest.mark.parametrize("source", IDIOMS)
def test_a_program_gets_the_words_that_bash_gives_it(source: str, tmp_path: Path) -> None:
    missing = [tool for tool in ("bash", *TOOLS) if tool in f"bash {source}" and shutil.which(tool) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]} to compare with")
    real = by_bash(source, tmp_path)
    assert real
    (tmp_path / "empty").mkdir()
    shell = evaluated(source, tmp_path / "empty")
    words = [[word.plain for word in launch.words] for launch in shell.launches]
    assert [found[1:] for found in words if found[:1] == [PROGRAM]] == real


@pytest.mark.parametrize(
    "source",
    [
        "x=$(" + "case a in " * 20_000 + ")",
        "x=$(" + "cat <<A " * 20_000 + "\n)",
        "x=$(echo (( " + "# " * 100_000 + ")",
        "x=$(awk '" + " " * 1900 + "x{')",
        "y=" + "x" * 3000 + "\nx=$(echo $y | grep 'x*y.*z')",
        "y=" + "a" * 3000 + "\nx=$(echo $y | sed 's/a*b.*c/d/g')",
        'x=$(python3 -c "print(2**64**64, 9**9**9)")',
        'x=$(python3 -c "print(' + "(" * 3000 + ')")',
        "echo {1..9999}{1..9999}{1..9999}{1..9999}",
        "[[ " + "a" * 3000 + " =~ a*a*b ]]",
        "set -- -a; while getopts a o; do OPTIND=1; done",
        "c=d; d=c; echo $((c))",
    ],
    ids=range(12),
)
def test_hostile_filters_end_in_time(source: str, tmp_path: Path) -> None:
    start = time.monotonic()
    evaluated(source, tmp_path)
    assert time.monotonic() - start < 15


def test_awk_prints_fields_and_sums() -> None:
    """Results of GNU awk 5."""
    for program, lines, expected in (
        ('$1 == "node" {print $2; n++} END {print n}', ["node a", "x b", "node c"], "a\nc\n2\n"),
        ("NR == 2", ["a", "b"], "b\n"),
        ("/b/ {print $NF}", ["a 1", "b 2 3"], "3\n"),
        (r'BEGIN {printf "%d\n", 7 / 2}', [], "3\n"),
    ):
        parsed = awk.parse(program)
        assert parsed is not None
        assert awk.run(parsed, lines, None, {}) == expected


BEYOND = (
    "awk '/a/ {next} {print}'",
    "awk '{print length}'",
    """awk 'BEGIN {OFS="-"} {print $1, $2}'""",
    "awk -v OFS=- '{print $1, $2}'",
    """awk '{printf "%x", 255}'""",
    """awk '{print $1 > "file"}'""",
    "sed -n 's/a/b/'",
    "cut -d, -f1 --complement",
    """python3 -c "print(f'{1!r}')\"""",
    """python3 -c "print(len(5))\"""",
    """python3 -c "print(list('ab'))\"""",
)


@pytest.mark.parametrize("program", BEYOND)
def test_what_is_not_understood_is_open_and_not_guessed(program: str, tmp_path: Path) -> None:
    shell = evaluated(f"x=$(echo a,b,c | {program}); echo2 $x", tmp_path)
    (launch,) = [launch for launch in shell.launches if launch.words[0].plain == PROGRAM]
    assert not launch.words[1].is_known
