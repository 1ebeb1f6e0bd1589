"""Lists have one value on every CPU: the checks of `determinism.py` under several settings of torch and MKL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("determinism.py")
CPU_FACTS = Path("/proc/cpuinfo")
NEEDED = {"avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}}
SETTINGS = ["", "ATEN_CPU_CAPABILITY=default", "ATEN_CPU_CAPABILITY=avx2", "ATEN_CPU_CAPABILITY=avx512"]


def capability() -> set[str]:
    """Which of torch's ways to compute this CPU has; whichever is asked for, torch takes, and the process may die."""
    if CPU_FACTS.exists():
        lines = CPU_FACTS.read_text(encoding="utf-8").splitlines()
        flags = {flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()}
        return {"default", *(name for name, needed in NEEDED.items() if needed <= flags)}
    own = torch.backends.cpu.get_cpu_capability().lower()
    return {"default", own, *(("avx2",) if own == "avx512" else ())}


@pytest.mark.parametrize("setting", [*SETTINGS, "MKL_ENABLE_INSTRUCTIONS=AVX2"])
def test_lists_and_weights_depend_on_nothing_but_their_own_data(setting):
    name, _, value = setting.partition("=")
    if name == "ATEN_CPU_CAPABILITY" and value not in capability():
        pytest.skip(f"this CPU has no {value}")
    environment = {key: kept for key, kept in os.environ.items() if key not in ("ATEN_CPU_CAPABILITY", name)}
    if name:
        environment[name] = value
    done = subprocess.run([sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if name == "ATEN_CPU_CAPABILITY":
        assert done.stdout.strip().lower() in (value, "no avx" if value == "default" else value)
