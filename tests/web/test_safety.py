"""Nothing of the server can be read, written or started through it, and nothing is too large for it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import meshwright.service.child

pytestmark = pytest.mark.xdist_group("web")


def test_a_path_is_no_model(api: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for name in (str(tmp_path), str(tmp_path / "config.json"), "/etc/passwd", "../config.json"):
        found = api.post("/api/plan", json={"model": name, "gpus": "8xH100"})
        assert found.status_code == 422
        assert "no model" in found.json()["error"]


def test_a_path_is_no_cluster(api: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("gpu: H100\nnodes: 1\n")
    found = api.post("/api/plan", json={"model": "llama-3-8b", "gpus": str(tmp_path / "c.yaml")})
    assert found.status_code == 422
    assert "files are not read here" in found.json()["error"]


def test_hub_ids_are_not_fetched(api: httpx.Client) -> None:
    start = time.perf_counter()
    found = api.post("/api/plan", json={"model": "some-owner/some-model", "gpus": "8xH100"})
    assert found.status_code == 422
    assert time.perf_counter() - start < 2


def test_a_script_reads_nothing_of_this_machine(api: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "secret.sh").write_text("TP=2\n")
    (tmp_path / "value").write_text("2")
    for line in (f"source {tmp_path}/secret.sh", f"TP=$(cat {tmp_path}/value)"):
        script = f"{line}\ntorchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size $TP\n"
        found = api.post("/api/check", json={"text": script}).json()
        assert found["resolved"].get("tp", {}).get("value") != 2


def test_a_script_is_never_run(api: httpx.Client, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    start = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2"
    script = f"touch {mark}; echo x > {mark}\n$(touch {mark})\n{start}\n"
    api.post("/api/check", json={"text": script})
    api.post("/api/check", json={"text": f"import os\nos.system('touch {mark}')\n", "name": "recipe.py"})
    api.post(
        "/api/check", json={"text": f"!!python/object/apply:os.system ['touch {mark}']", "name": "a.yaml"}
    )
    assert not mark.exists()


LOCKED = """
import os, subprocess, socket, sys
from meshwright.service.child import lock, own_places
lock(own_places())
def refused(work):
    try:
        work()
    except PermissionError:
        return True
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return False
print([
    refused(lambda: open("/etc/passwd")),
    refused(lambda: os.open("/etc/passwd", os.O_RDONLY)),
    refused(lambda: open(sys.argv[1], "w")),
    refused(lambda: open(os.path.join(os.path.dirname(os.__file__), "new.txt"), "w")),
    refused(lambda: os.listdir("/etc")),
    refused(lambda: os.remove(sys.argv[1])),
    refused(lambda: subprocess.run(["true"])),
    refused(lambda: os.system("true")),
    refused(lambda: socket.create_connection(("127.0.0.1", 1))),
])
import decimal, this
"""


def test_a_locked_worker_opens_and_starts_nothing(tmp_path: Path) -> None:
    source = str(Path(meshwright.service.child.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOCKED, str(tmp_path / "new")],
        capture_output=True, text=True, env={"PYTHONPATH": source, "PATH": "/usr/bin"}, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == str([True] * 9)


@pytest.mark.parametrize(
    "path",
    [
        "/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../app.py",
        "/index.html/..",
        "//etc/passwd",
    ],
)
def test_no_path_reaches_the_file_system(server: str, path: str) -> None:
    host, port = server.removeprefix("http://").split(":")
    import http.client

    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("GET", path)  # sent as it is: an HTTP client with manners would tidy it up
    answer = connection.getresponse()
    assert answer.status == 404
    assert b"root:" not in answer.read()


def test_a_body_that_is_too_large_is_refused(api: httpx.Client) -> None:
    found = api.post("/api/check", content=b" " * (3 << 20), headers={"content-type": "application/json"})
    assert found.status_code == 413
    assert found.json()["kind"] == "limit"


def test_only_json_is_taken(api: httpx.Client) -> None:
    """A form of another site could send text/plain without asking first."""
    body = json.dumps({"model": "llama-3-8b", "gpus": "8xH100"})
    assert api.post("/api/plan", content=body, headers={"content-type": "text/plain"}).status_code == 415
    assert (
        api.post("/api/plan", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    )


def test_other_names_of_this_machine_are_refused(api: httpx.Client) -> None:
    """A page elsewhere whose name was rebound to loopback gets nothing."""
    assert api.get("/api/limits", headers={"host": "evil.example"}).status_code == 400


def test_pages_load_nothing_from_elsewhere(api: httpx.Client) -> None:
    for path in ("/", "/api/limits", "/no-such-page"):
        headers = api.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"


def test_it_listens_on_loopback_only(server: str) -> None:
    assert server.startswith("http://127.0.0.1:")
