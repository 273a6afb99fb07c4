"""One engine process for all engine tests: importing torch and Megatron Core is paid once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshwright.verify.process import EngineProcess, missing_packages


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineProcess]:
    if missing := missing_packages():
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'meshwright[verify]'")
    with EngineProcess() as process:
        yield process
