"""The config.json of a model on the Hugging Face hub, or of any server that HF_ENDPOINT names."""

from __future__ import annotations

import os
import threading
from typing import Any

from meshwright.errors import QuestionError

DEADLINE = 45.0
"""Longest the hub may take, retries of its client included [s]."""

REQUEST_TIMEOUT = 10.0
"""Longest one request may take to answer [s]."""


def fetch_config(repo: str, largest: int, deadline: float = DEADLINE) -> bytes:
    """Bytes of `config.json` in a repository `owner/name`, from the local cache or the hub.

    largest   refuse a bigger file [bytes]
    deadline  give up after this time [s]

    QuestionError: offline, not found, gated, too big, no answer in time, or no client installed.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise QuestionError(
            f"{repo} is not in the catalog, and asking the hub needs: pip install 'meshwright[hub]'"
        ) from None
    del huggingface_hub
    answer: dict[str, Any] = {}

    def ask() -> None:
        try:
            answer["data"] = _ask(repo, largest)
        except BaseException as error:  # handed over to the caller's thread, which judges it
            answer["error"] = error

    worker = threading.Thread(target=ask, name="hub", daemon=True)
    worker.start()
    worker.join(deadline)
    if worker.is_alive():
        raise QuestionError(f"{_endpoint()} gave no config.json of {repo} within {deadline:.0f} s")
    if "error" in answer:
        raise _explained(repo, answer["error"]) from None
    data: bytes = answer["data"]
    return data


def _ask(repo: str, largest: int) -> bytes:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    endpoint = os.environ.get("HF_ENDPOINT") or None
    if _offline():
        path = hf_hub_download(repo, "config.json", local_files_only=True)
    else:
        url = hf_hub_url(repo, "config.json", endpoint=endpoint)
        size = get_hf_file_metadata(url, timeout=REQUEST_TIMEOUT, endpoint=endpoint).size
        if size is not None and size > largest:
            raise QuestionError(f"config.json of {repo} has {size:,} bytes; at most {largest:,} are read")
        path = hf_hub_download(repo, "config.json", endpoint=endpoint, etag_timeout=REQUEST_TIMEOUT)
    with open(path, "rb") as file:
        return file.read(largest + 1)


def _explained(repo: str, error: BaseException) -> BaseException:
    """The error in words for people; what nobody foresaw stays as it is."""
    if isinstance(error, QuestionError):
        return error
    names = {cls.__name__ for cls in type(error).__mro__}
    where = _endpoint()
    if _offline() or "OfflineModeIsEnabled" in names:
        return QuestionError(
            f"{repo} is neither in the catalog nor in the local cache, and HF_HUB_OFFLINE keeps the hub from "
            "being asked"
        )
    if "GatedRepoError" in names:
        return QuestionError(f"{repo} is gated: accept its licence on {where} and log in (hf auth login)")
    if "RepositoryNotFoundError" in names:
        return QuestionError(f"{where} has no model {repo} (or it is private); nor has the catalog")
    if "EntryNotFoundError" in names and "LocalEntryNotFoundError" not in names:
        return QuestionError(f"the repository {repo} on {where} has no config.json")
    if isinstance(error, Exception):
        reason = str(error).strip().splitlines()
        return QuestionError(
            f"{repo} is not in the catalog, and {where} could not be asked: "
            f"{reason[0][:160] if reason else type(error).__name__}"
        )
    return error


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
