"""A training command without torch: Megatron-like log lines at a pace that its arguments choose.

python trainer.py --tp 2 --world 8 --iterations 6 --milliseconds 20 [--fault crash|oom|hang] [--note FILE]
"""

import argparse
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=1)
parser.add_argument("--world", type=int, default=8)
parser.add_argument("--iterations", type=int, default=6)
parser.add_argument("--milliseconds", type=float, default=20)
parser.add_argument("--fault", default="")
parser.add_argument("--note", help="a line is appended to this file when the training really starts")
given = parser.parse_args()

if given.note:
    with open(given.note, "a") as file:
        file.write(f"tp{given.tp}\n")
print(
    f"using world size: {given.world}, data-parallel size: {given.world // given.tp}, "
    f"context-parallel size: 1, tensor-model-parallel size: {given.tp}, pipeline-model-parallel size: 1",
    flush=True,
)
for step in range(1, given.iterations + 1):
    if step == 2 and given.fault == "crash":
        raise RuntimeError("the data set ended")
    if step == 2 and given.fault == "oom":
        print("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
        sys.exit(1)
    if step == 2 and given.fault == "hang":
        time.sleep(600)
    time.sleep(given.milliseconds / 1e3)
    print(
        f" iteration {step:8d}/{given.iterations:8d} | consumed samples: {step * 128:12d} | "
        f"elapsed time per iteration (ms): {given.milliseconds:.1f} | throughput per GPU (TFLOP/s/GPU): 400 "
        f"| learning rate: 1.0E-04 | global batch size: 128 | lm loss: {12.0 - step:.6E} | loss scale: 1.0 "
        "| grad norm: 1.000 | number of skipped iterations: 0 | number of nan iterations: 0 |",
        flush=True,
    )
    if step == 2:
        print(
            "[Rank 0] (after 2 iterations) memory (MB) | allocated: 20000.0 | max allocated: 40960.0 | "
            "reserved: 50000.0 | max reserved: 50000.0",
            flush=True,
        )
