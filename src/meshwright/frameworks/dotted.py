"""Frameworks whose options are dotted names: one table turns them into Megatron's, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.facts import load_json
from meshwright.frameworks.commands import value_of
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.interpolation import resolved
from meshwright.frameworks.reading import Launcher, Plain, Unknown, Value
from meshwright.frameworks.shell.text import Text, Unknowns
from meshwright.frameworks.spelling import arguments, canonical, table
from meshwright.frameworks.world import from_counts


@dataclass
class Sorted:
    """Dotted options, sorted into what the rules know and what they do not."""

    options: dict[str, Value] = field(default_factory=dict)
    other: dict[str, Value] = field(default_factory=dict)
    unknowns: list[Unknown] = field(default_factory=list)
    launcher: Launcher = field(default_factory=Launcher)
    model: Value | None = None


def megatron_name(framework: str, path: str) -> str | None:
    """Megatron's name of a dotted option, None when it has none."""
    entry = table()["frameworks"][framework]
    if (name := entry["paths"].get(path)) is not None:
        return str(name)
    group, _, last = path.rpartition(".")
    return last if group in entry["prefixes"] else None


def sort_options(framework: str, flat: Flat, environment: Mapping[str, str]) -> Sorted:
    """Options of a document in Megatron's names."""
    entry = table()["frameworks"][framework]
    done, open_ = resolved(flat, environment)
    sorted_ = Sorted()
    for path, value in done.items():
        name = megatron_name(framework, path)
        if name is None:
            sorted_.other[path] = value
            continue
        key, plain = canonical(name, value.value)
        sorted_.options[key] = Value(plain, value.source)
    for path, unknown in open_.items():
        name = megatron_name(framework, path)
        if name is not None and is_option(name):
            sorted_.unknowns.append(replace(unknown, option=canonical(name, None)[0]))
    places = entry.get("launcher", {})
    nodes, per_node = (_whole(done.get(places.get(key, ""))) for key in ("nodes", "gpus_per_node"))
    sorted_.launcher = from_counts(nodes, per_node)
    sorted_.model = next((done[path] for path in entry.get("model", ()) if path in done), None)
    return sorted_


def is_option(name: str) -> bool:
    """Whether an open value by this name matters: it is an argument of Megatron."""
    return name in {row[0] for row in arguments().values()} or name in set(table()["short"].values())


def _whole(value: Value | None) -> Value | None:
    good = value is not None and isinstance(value.value, int) and not isinstance(value.value, bool)
    if value is not None and isinstance(value.value, str) and value.value.isdigit():
        return Value(int(value.value), value.source)
    return value if good else None


def overrides(
    words: Iterable[Text], unknowns: Unknowns
) -> tuple[dict[str, Value], list[Unknown], list[Text]]:
    """Hydra words `a.b=c`, `+a.b=c`, `++a.b=c`, `~a.b`: (values, open values, the other words)."""
    found: dict[str, Value] = {}
    open_: list[Unknown] = []
    rest: list[Text] = []
    for word in words:
        name, equals, value = word.partition("=")
        key = name.plain.lstrip("+~").strip("'\"")
        if (
            not equals
            or word.plain.startswith("-")
            or not key.replace(".", "").replace("_", "").replace("/", "").isalnum()
        ):
            rest.append(word)
            continue
        read = value_of(key, value, unknowns)
        if isinstance(read, Unknown):
            open_.append(read)
            found.pop(key, None)
        else:
            found[key] = read
    return found, open_, rest


def write_paths(framework: str, options: Mapping[str, Plain]) -> dict[str, Plain]:
    """Dotted options of a framework for options in Megatron's names; what it cannot say is left out."""
    found = {name: path_of(framework, name) for name in options}
    return {path: options[name] for name, path in found.items() if path is not None}


def path_of(framework: str, name: str) -> str | None:
    """Dotted name of one of Megatron's options in a framework, None when it has none."""
    rule: dict[str, Any] = table()["frameworks"][framework]["write"]
    if name in rule.get("leave", ()):
        return None
    if (renamed := rule.get("renamed", {}).get(name)) is not None:
        return str(renamed)
    for group, names in rule.items():
        if isinstance(names, list) and name in names:
            return f"{group}.{name}"
    if "fields" in rule:
        groups: dict[str, list[str]] = load_json("meshwright.frameworks", rule["fields"])["groups"]
        chosen = {k: v for k, v in groups.items() if rule.get("only", k) == k}
        found = next((key for key, names in chosen.items() if name in names), None)
        return f"{found}.{name}" if found is not None else None
    return f"{rule['default']}.{name}" if "default" in rule else None


def nested(flat: Mapping[str, Plain]) -> dict[str, Any]:
    """Dotted names as a tree of dicts."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *groups, last = path.split(".")
        here = tree
        for group in groups:
            here = here.setdefault(group, {})
        here[last] = list(value) if isinstance(value, tuple) else value
    return tree


def yaml_text(tree: Mapping[str, Any], heading: str = "") -> str:
    """A tree as YAML, with a comment on top."""
    import yaml

    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    return comment + yaml.safe_dump(dict(tree), sort_keys=False, default_flow_style=None, width=100)
