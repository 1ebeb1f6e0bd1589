"""How the loops of the fast path are compiled: by numba, cached on disk, without the interpreter's lock.

The loops are in the other modules of this room. None of them starts a thread (`threads` does), and sums run in a fixed
order: the same arrays give the same bytes.
"""

from __future__ import annotations

from typing import Any

import numba

ADOPTED, MISSING, REJECTED = 1, 0, -1  # roles of a user's item


def compiled(function: Any) -> Any:
    """Compiled at its first call; sums may run in a different order than written, but always in the same one."""
    return _kept(function, {"contract", "reassoc", "nsz", "arcp"})


def compiled_without_nan(function: Any) -> Any:
    """The same for arrays without NaN, so that their maximum is found eight numbers at a time."""
    return _kept(function, {"contract", "reassoc", "nsz", "arcp", "nnan"})


def compiled_as_written(function: Any) -> Any:
    """No sum is reordered and no product joined to a sum: the result depends on nothing but the numbers."""
    return _kept(function, set())


def inlined(function: Any) -> Any:
    """The same, inlined into its caller, so that code does not depend on which function was compiled first."""
    return numba.njit(nogil=True, error_model="numpy", inline="always")(function)


def _kept(function: Any, fastmath: set[str]) -> Any:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to cache compiled code on this machine: each process compiles its own
        return numba.njit(**options)(function)
