"""What runs here."""

from __future__ import annotations

import platform
from typing import Any


def versions(request: dict[str, Any]) -> dict[str, str]:
    import megatron.core
    import torch

    from meshwright.verify.engine.standin import VERSION

    return {
        "megatron-core": megatron.core.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "transformer-engine": f"{VERSION} (stand-in on CPUs)",
    }
