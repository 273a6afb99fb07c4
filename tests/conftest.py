"""Tests never read what somebody calibrated on this machine."""

import os
from pathlib import Path

os.environ["MESHWRIGHT_CALIBRATION"] = str(Path(__file__).parent / "no-calibration.json")
