# ruff: noqa: E501 - a script and what it shows stay on one line
"""Shell expansion, held against bash itself: the same text must give the same words."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.frameworks.shell.evaluate import Shell
from meshwright.frameworks.shell.files import Files
from meshwright.frameworks.shell.script import text_of_file
from meshwright.frameworks.shell.state import State
from meshwright.frameworks.shell.text import Text

BASH = shutil.which("bash")
# bash itself is the judge here; where it is missing there is nothing to compare with
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash to compare with")


def bash_words(script: str) -> list[str]:
    """Words that bash passes to `show`."""
    full = 'show() { for w in "$@"; do printf "%s\\x1f" "$w"; done; printf "\\x1e"; }\n' + script
    done = subprocess.run(
        [str(BASH), "-c", full, "script"], capture_output=True, text=True, env={}, timeout=20, check=False
    )
    calls = done.stdout.split("\x1e")[:-1]
    return [word for call in calls for word in [*call.split("\x1f")[:-1], "|"]]


def our_words(script: str) -> list[str]:
    shell = Shell(Files(Path("/nonexistent"), {}), State())
    shell.state.positional, shell.state.arguments_given = [], True
    shell.state.variables["UID"] = Text.of("0")
    shell.run_file("script", text_of_file(script, "script"))
    calls = [launch for launch in shell.launches if launch.words[0].plain == "show"]
    return [word for call in calls for word in [*(shell.unknowns.shown(w) for w in call.words[1:]), "|"]]


SCRIPTS = {
    "quotes": """a='x  y'; b="$a z"; show $a "$a" '$a' "b=$b" \\$a "q\\"q" a\\ b $'t\\tn' """,
    "defaults": """show "${A:-x}" ${A-y} "${A:=set}" $A "${B:+alt}" "${A:+alt}"; E=; show "${E:-d}" "${E-d}." """,
    "default with spaces": """: "${N:=two words}"; show $N "$N" ${M:-a b} "${M:-a b}" ${M:-"a b"}""",
    "nested default": """X=${X:-${Y:-${Z:-deep}}}; show $X ${Q:-$X/${X}y}""",
    "arrays": """A=(one "two three" four); A+=(five); show "${A[@]}" ${A[@]} "${A[*]}" ${#A[@]} ${A[1]} "${A[-1]}" """,
    "array in the middle": """A=(1 2 3); show "a${A[@]}b" x${A[@]}y""",
    "empty arrays": """A=(); show "${A[@]}" end; show x"${A[@]}"y; show "${A[*]}" """,
    "associative": """declare -A M=([k]=v ["a b"]=c); M[n]=4; show ${M[k]} "${M[a b]}" ${M[n]} ${#M[@]}""",
    "indexed assignment": """a[2]=x; a[0]=y; show "${a[@]}" ${!a[@]} ${#a[@]}""",
    "lengths": """s=abcdef; show ${#s} ${s:2} ${s:1:3} ${s: -2} ${s:0:-1}""",
    "array slices": """A=(a b c d); show "${A[@]:1:2}" "${A[@]:2}" """,
    "prefix and suffix": """p=/a/b/c.tar.gz; show ${p##*/} ${p#*/} ${p%.*} ${p%%.*} ${p%/*}""",
    "replacement": """s=a-b-c; show ${s/-/_} ${s//-/_} ${s/#a/X} ${s/%c/Y} ${s//-} "${s//b/x y}" """,
    "case": """s=Hello; show ${s^^} ${s,,} ${s^} ${s,}""",
    "indirect": """x=y; y=5; n=x; show ${!x} ${!n}""",
    "arithmetic": """N=8; show $((N*4)) $((N/3)) $((N%3)) $((2**5)) $(( (N+1) * 2 )) $((-7/2)) $((N>4)) $((N>4?1:2))""",
    "arithmetic names": """a=3; b=a; show $((b+1)) $(($a+1)) $((x=5)) $x $((x++)) $x $((++x)) $((a,b))""",
    "arithmetic bases": """show $((0x1F)) $((010)) $((2#101)) $((1<<4)) $((5&3)) $((5|3)) $((5^3)) $((~0)) $((!0))""",
    "compound arithmetic": """x=1; ((x+=4)); let y=x*2; show $x $y; ((x > 3)) && show yes""",
    "for": """for i in 1 2 "3 4"; do show $i "$i"; done""",
    "for over array": """C=("1 2" "3 4"); for c in "${C[@]}"; do set -- $c; show $1 $2 $#; done""",
    "c for": """for ((i=0; i<3; i++)); do show $i; done""",
    "brace range": """for i in {1..3} {5..4}; do show $i; done; show a{1,2}b {x,y}""",
    "while": """i=0; while [ $i -lt 3 ]; do show $i; i=$((i+1)); done; until (( i == 0 )); do i=$((i-1)); done; show $i""",
    "break and continue": """for i in 1 2 3 4; do [ $i = 2 ] && continue; [[ $i == 4 ]] && break; show $i; done""",
    "read": """read -r A B C <<< "1 2 3 4"; show $A $B "$C"; IFS=, read x y <<< "p,q"; show $x""",
    "while read": """printf 'a 1\\nb 2\\n' | while read k v; do show $k $v; done""",
    "if": """x=5; if [ $x -gt 3 ] && [ "$x" != 7 ]; then show big; elif [ $x = 3 ]; then show three; else show small; fi""",
    "double brackets": """s=abc; [[ $s == a* && ! $s == *z || -z $s ]] && show yes; [[ $s == "a*" ]] || show no; [[ -n $s ]] && show n""",
    "regex": """s=12; [[ $s =~ ^[0-9]+$ ]] && show number; [[ x$s =~ ^[0-9]+$ ]] || show none""",
    "case statement": """for v in 7b 13b zz; do case "$v" in 7b|8b) show seven;; 1*) show one;; *) show other;; esac; done""",
    "functions": """f() { local x=$1; shift; show "$x" "$@" $#; }; x=0; f a "b c" d; show $x; g() { return 1; }; g || show failed""",
    "substitution": """show $(echo a b) "$(echo a b)" `echo c` "$(printf '%s-%s' x y)" $(basename /a/b.sh .sh) $(dirname /a/b)""",
    "filters": """show $(seq 3) $(echo a:b:c | cut -d: -f2) $(echo abc | tr a-z A-Z) $(printf '1\\n2\\n' | wc -l) $(printf '1\\n2\\n' | head -n 1)""",
    "append": """s=a; s+=b; s+=" c"; show "$s" $s""",
    "heredoc": """x=5; cat > f.txt <<EOF\na $x \\$x $((x+1)) "q"\nEOF\nshow done""",
    "subshell": """x=1; ( x=2; show $x ); show $x; { x=3; }; show $x""",
    "continuation": """show a \\\n  b \\\n  "c"  # comment\nshow '#' a#b""",
    "eval": """cmd="show a 'b c' \\$HOME_NOT"; x=1; HOME_NOT=h; eval "$cmd"; eval show \\$x""",
    "set": """set -- a "b c" d; show "$@" $# "$2"; shift; show "$1" "${@:2}" """,
    "positional defaults": """show "${1:-none}" ${2:-13b} $# """,
    "string tests": """[ -z "$u" ] && show unset; [ -n "$u" ] || show unset2; [ "x$u" = x ] && show unset3""",
    "mapfile": """mapfile -t L <<< $'a b\\nc'; show "${L[@]}" ${#L[@]}""",
    "quoted newline list": """A="\n --x 1\n --y 2\n"; show $A""",
    "comments in arrays": """A=( a # one\n b\n # c\n 'd # e' ); show "${A[@]}" """,
    "and or": """true && : || show 2; false && show 3 || show 4; ! false && show 5; f() { return 3; }; f || show 6""",
    "export": """export A=1 B="$((1+1))"; declare -i n=4; readonly R=5; show $A $B $n $R""",
    "printf -v": """printf -v name 'tp%d_pp%02d' 4 2; show $name""",
    "globs stay": """set -f; L='Et*4|(t*4|)*14tmL'; show $L "$L" """,
    "unset": """a=1; unset a; show "${a:-gone}"; B=(1 2); unset B; show "${B[@]:-none}" """,
    "nested quotes": """a=1; show "x $(echo "y $(echo "z $a")") w" "${a:+"q $a"}" """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_of_bash(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert our_words(SCRIPTS[name]) == bash_words(SCRIPTS[name])


ATOMS = st.sampled_from(
    ["a", "-b", "' '", '"x y"', '"$V"', "${V}", "${V:-d}", "${U:-d e}", '"${A[@]}"', "${A[@]}", "$((N+1))",
     "${#V}", "${V%b}", "${V#a}", "${V/a/b}", "a\\ b", "$(echo q r)", '"$(echo q r)"', "x${N}y", "${A[1]}", "'$V'", "${U:+z}"]
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(words=st.lists(st.lists(ATOMS, min_size=1, max_size=4).map("".join), min_size=1, max_size=8))
def test_random_words_are_those_of_bash(words: list[str]) -> None:
    script = "V='a b'; N=7; A=('p q' r ''); show " + " ".join(words)
    assert our_words(script) == bash_words(script)


NUMBERS = st.recursive(
    st.integers(0, 99).map(str) | st.sampled_from(["N", "M", "$N"]),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/%<>&|^"), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(expressions=st.lists(NUMBERS, min_size=1, max_size=6))
def test_random_sums_are_those_of_bash(expressions: list[str]) -> None:
    for expression in expressions:
        script = f"N=7; M=3; show $(( {expression} ))"
        theirs = bash_words(script)
        if theirs:  # bash prints nothing for a division by zero
            assert our_words(script) == theirs
