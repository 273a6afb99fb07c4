"""The room's public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import meshwright.model as room


@pytest.mark.parametrize("name", sorted(room.__all__))
def test_every_public_name_is_there(name):
    assert getattr(room, name).__name__ == name


def test_the_list_is_the_table_of_homes_and_override_is_the_function():
    assert sorted(room._HOME) == sorted(room.__all__)
    assert callable(room.override)


def test_importing_the_room_loads_no_data_and_no_heavy_module():
    code = (
        "import sys, meshwright.model; print([m for m in sys.modules if m.startswith('meshwright.model.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
