"""The most memory that this process has held, as far as the system says."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # Linux


def forget_peak_memory() -> None:
    """Measure the peak from here on, on systems that can."""
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")


def peak_memory() -> int | None:
    """In MiB; None on a system that does not say."""
    with suppress(OSError, StopIteration):
        lines = _STATUS.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024
    n_bytes = _peak_bytes()
    return None if n_bytes is None else n_bytes // (1024 * 1024)


if sys.platform == "win32":

    def _peak_bytes() -> int | None:
        """PeakWorkingSetSize of the Windows API."""
        import ctypes
        from ctypes import wintypes

        class Counters(ctypes.Structure):
            _fields_ = (
                ("cb", wintypes.DWORD),
                ("PageFaultCount", wintypes.DWORD),
                ("PeakWorkingSetSize", ctypes.c_size_t),
                ("others", ctypes.c_size_t * 7),
            )

        counters = Counters(cb=ctypes.sizeof(Counters))
        kernel = ctypes.WinDLL("kernel32")
        kernel.GetCurrentProcess.restype = wintypes.HANDLE
        kernel.K32GetProcessMemoryInfo.argtypes = (wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD)
        found = kernel.K32GetProcessMemoryInfo(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.cb)
        return int(counters.PeakWorkingSetSize) if found else None

else:

    def _peak_bytes() -> int | None:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # bytes there, KiB elsewhere
