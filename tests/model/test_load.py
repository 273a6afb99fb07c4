"""What a person types: names, files, directories, hub ids; and what may be wrong with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from meshwright.errors import QuestionError
from meshwright.model.hub import fetch_config
from meshwright.model.load import load_model
from meshwright.model.parameters import count_parameters

LLAMA_8B = {"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}  # fmt: skip
TOTAL_8B = 8_030_261_248


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_catalog_name_a_file_and_a_directory_lead_to_the_same_model(here):
    (here / "mine").mkdir()
    (here / "mine" / "config.json").write_text(json.dumps(LLAMA_8B))
    loaded = [load_model(text) for text in ("llama3-8b", "mine/config.json", "mine", str(here / "mine"))]
    assert {count_parameters(model).total for model in loaded} == {TOTAL_8B}
    assert [model.name for model in loaded] == ["llama-3-8b", "mine", "mine", "mine"]


def test_a_path_that_exists_wins_over_the_catalog(here):
    (here / "llama-3-8b").write_text(json.dumps(LLAMA_8B | {"num_hidden_layers": 2}))
    assert load_model("llama-3-8b").num_layers == 2


def test_the_catalog_wins_over_the_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert load_model("meta-llama/Meta-Llama-3-8B").name == "llama-3-8b"


def test_overrides_are_applied():
    assert load_model("llama-3-8b", {"num-layers": "4"}).num_layers == 4


BAD = [
    ("nonsense", "no model 'nonsense' in the catalog"),
    ("./nowhere", "no file or directory ./nowhere"),
    ("nowhere.json", "no file or directory nowhere.json"),
    ("empty", "the directory empty has no config.json"),
    ("list.json", "list.json holds a JSON list; a config.json holds an object"),
    ("broken.json", "broken.json is not JSON: .* at line 1, column 10"),
    ("binary.json", "binary.json is not a text file"),
    ("deep.json", "deep.json is not a config.json: nested too deep"),
    ("digits.json", "digits.json is not a config.json: .*a number too long"),
    ("big.json", "big.json has 2,147,483,648 bytes; a config.json has at most 10,485,760"),
    ("/dev/zero", "/dev/zero is not a regular file"),
    ("pipe", "pipe is not a regular file"),
    ("nan.json", "hidden_size is nan; it must be a whole number"),
    ("x" * 100_000, "no model 'xxx"),
    ("\0", "no model"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[text[:12].replace("\0", "nul") for text, _ in BAD])
def test_bad_input_gives_one_clear_error_at_once(here, text, says):
    (here / "empty").mkdir()
    (here / "list.json").write_text("[1, 2]")
    (here / "broken.json").write_text('{"a": 1, ]')
    (here / "binary.json").write_bytes(bytes(range(128, 256)))
    (here / "deep.json").write_text("[" * 200_000)
    (here / "digits.json").write_text('{"a": ' + "9" * 10_000 + "}")
    (here / "nan.json").write_text(json.dumps(LLAMA_8B | {"hidden_size": float("nan")}))
    os.mkfifo(here / "pipe")
    with (here / "big.json").open("wb") as file:
        file.truncate(2 * 1024**3)
    start = time.monotonic()
    with pytest.raises(QuestionError, match=says) as error:
        load_model(text)
    assert time.monotonic() - start < 2
    assert len(str(error.value)) < 1000


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does for one small, one huge, one gated, one empty and one silent repository."""

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        content = json.dumps(LLAMA_8B).encode()
        owner = self.path.split("/")[1]
        status, code = {"lab": (200, ""), "gated": (403, "GatedRepo"), "bare": (404, "EntryNotFound"),
                        "huge": (200, ""), "silent": (200, "")}.get(owner, (404, "RepoNotFound"))  # fmt: skip
        if owner == "silent":
            time.sleep(20)
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
        else:
            self.send_header("ETag", '"1234"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(10**12 if owner == "huge" else len(content)))
        self.end_headers()
        if body and not code and owner != "huge":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield server
    server.shutdown()


def test_a_hub_id_is_fetched_and_then_kept(hub, monkeypatch):
    model = load_model("lab/my-llama")
    assert (model.name, count_parameters(model).total) == ("my-llama", TOTAL_8B)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load_model("lab/my-llama") == model


@pytest.mark.parametrize(
    ("repo", "says"),
    [
        ("nobody/nothing", "has no model nobody/nothing .or it is private.; nor has the catalog"),
        ("gated/model", "gated/model is gated: accept its licence"),
        ("bare/model", "the repository bare/model on http://127.0.0.1:.* has no config.json"),
        ("huge/model", "config.json of huge/model has 1,000,000,000,000 bytes; at most 10,485,760"),
    ],
)
def test_the_hub_s_refusals_are_explained(hub, repo, says):
    with pytest.raises(QuestionError, match=says):
        load_model(repo)


def test_a_silent_hub_is_given_up(hub):
    start = time.monotonic()
    with pytest.raises(QuestionError, match="of silent/model within 1 s"):
        fetch_config("silent/model", 1000, deadline=1.0)
    assert time.monotonic() - start < 5


def test_offline_says_so(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        QuestionError, match="neither in the catalog nor in the local cache, and HF_HUB_OFFLINE"
    ):
        load_model("lab/another")


def test_a_hub_that_is_not_there_says_which(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(QuestionError, match=r"not in the catalog, and http://127.0.0.1:9 could not be asked"):
        load_model("lab/my-llama")


def test_a_catalog_name_loads_no_hub_client_and_no_numpy():
    code = (
        "import sys, meshwright.model.load as load; load.load_model('deepseek-v3');"
        "print([m for m in ('huggingface_hub', 'numpy', 'torch', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_config_of_the_working_directory_is_called_by_its_own_kind(here):
    (here / "config.json").write_text(json.dumps(LLAMA_8B))
    assert [load_model(text).name for text in ("config.json", "./config.json")] == ["llama", "llama"]
