"""A model from what a person types: a catalog name, a config.json, a directory with one, or a hub id."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.errors import QuestionError
from meshwright.model import catalog
from meshwright.model.change import override
from meshwright.model.spec import Model

LARGEST_CONFIG = 10 * 1024 * 1024
"""A config.json is kilobytes; beyond this size the file is something else [bytes]."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def load_model(text: str, overrides: Mapping[str, object] | None = None) -> Model:
    """The model that `text` names, with some fields changed (see `override`).

    A path that exists wins; then the catalog; then, for `owner/name`, the Hugging Face hub (asked only
    then; HF_ENDPOINT, HF_HUB_OFFLINE and the local cache count). QuestionError says what went wrong.
    """
    model = _load(text)
    return override(model, overrides) if overrides else model


def _load(text: str) -> Model:
    path = _existing(text)
    if path is not None:
        return _from_path(path)
    if catalog.known(text):
        return catalog.find(text)
    if text.startswith((".", "/", "~")) or text.endswith(".json"):
        raise QuestionError(f"no file or directory {_short(text)}")
    if HUB_ID.fullmatch(text):
        from meshwright.model.hub import fetch_config

        return _from_json(
            fetch_config(text, LARGEST_CONFIG), f"config.json of {text}", text.rsplit("/", 1)[-1]
        )
    return catalog.find(text)


def _existing(text: str) -> Path | None:
    """The path, where `text` is one that exists; anything the file system refuses is no path."""
    try:
        path = Path(text).expanduser()
        return path if text.strip() and path.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _from_path(path: Path) -> Model:
    if path.is_dir():
        inside = path / "config.json"
        if not inside.exists():
            raise QuestionError(f"the directory {_short(str(path))} has no config.json")
        return _from_json(_read(inside), str(inside), path.resolve().name)
    name = path.stem
    if name == "config":  # the folder's name, where one was typed; else the model's own kind
        name = path.parent.name
    return _from_json(_read(path), str(path), name)


def _read(path: Path) -> bytes:
    """The bytes of a regular file of a believable size."""
    shown = _short(str(path))
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise QuestionError(f"{shown} is not a regular file")
        if status.st_size > LARGEST_CONFIG:
            raise QuestionError(
                f"{shown} has {status.st_size:,} bytes; a config.json has at most {LARGEST_CONFIG:,}"
            )
        with path.open("rb") as file:
            return file.read(LARGEST_CONFIG + 1)
    except OSError as error:
        raise QuestionError(f"cannot read {shown}: {error.strerror or error}") from None


def _from_json(data: bytes, where: str, name: str) -> Model:
    config = parse_config(data, where)
    from meshwright.model.huggingface import read_config

    return read_config(config, name=name or None)


def parse_config(data: bytes, where: str) -> Mapping[str, Any]:
    """The JSON object in `data`; QuestionError names `where` and what is wrong."""
    shown = _short(where)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise QuestionError(f"{shown} is not a text file; a config.json is JSON in UTF-8") from None
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise QuestionError(
            f"{shown} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except (ValueError, RecursionError):
        raise QuestionError(f"{shown} is not a config.json: nested too deep, or a number too long") from None
    if not isinstance(config, dict):
        raise QuestionError(f"{shown} holds a JSON {type(config).__name__}; a config.json holds an object")
    return config


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:60]}...{text[-57:]}"
