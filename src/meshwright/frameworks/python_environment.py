"""Environment variables that a Python file sets too late, after CUDA has started."""

from __future__ import annotations

import ast

from meshwright.frameworks.python_values import dotted
from meshwright.frameworks.reading import Note

CUDA_STARTS = ("init_process_group", "set_device", "synchronize", "initialize_megatron", "current_device")


def late_environment(module: ast.Module) -> tuple[Note, ...]:
    """os.environ assignments after CUDA has started, in the order of the lines."""
    started: int | None = None
    notes: list[Note] = []
    nodes = [node for node in ast.walk(module) if isinstance(node, (ast.Call, ast.Assign))]
    for node in sorted(nodes, key=lambda n: n.lineno):
        if isinstance(node, ast.Call):
            name = dotted(node.func) or ""
            cuda = ".cuda." in f".{name}." and not name.endswith(("is_available", "device_count"))
            if (cuda or name.split(".")[-1] in CUDA_STARTS) and started is None:
                started = node.lineno
            continue
        for target in node.targets:
            if not (isinstance(target, ast.Subscript) and (dotted(target.value) or "").endswith("environ")):
                continue
            key = str(target.slice.value) if isinstance(target.slice, ast.Constant) else "a variable"
            if started is not None and key.startswith(("CUDA", "NCCL", "PYTORCH", "NVTE", "NUM_OF_HYBRID")):
                notes.append(
                    Note(
                        id="environment-after-cuda",
                        severity="warn",
                        message=f"{key} is set on line {node.lineno}, after CUDA has started on line "
                        f"{started}, and has no effect: it must be set before CUDA init",
                        fix=f"export {key} in the shell that starts the training",
                        line=node.lineno,
                    )
                )
    return tuple(notes)
