"""How the fast path's loops are compiled: by numba, kept on disk, without the interpreter's lock.

The `compiled_…` modules hold the loops. None of them starts a thread (`workers` does), and sums run in a fixed order:
the same arrays give the same bytes.
"""

from __future__ import annotations

from typing import Any

import numba

ADOPTED, MISSING, REJECTED = 1, 0, -1  # roles of a user's item


def compiled(function: Any) -> Any:
    """Compiled at its first call; sums may be taken in another order than written, but always in the same one."""
    return _kept(function, {"contract", "reassoc", "nsz", "arcp"})


def compiled_without_nan(function: Any) -> Any:
    """The same for arrays that hold no NaN, whose largest is then found eight at a time."""
    return _kept(function, {"contract", "reassoc", "nsz", "arcp", "nnan"})


def inlined(function: Any) -> Any:
    """The same, as a part of whoever calls it: code then does not depend on which function was compiled first."""
    return numba.njit(nogil=True, error_model="numpy", inline="always")(function)


def _kept(function: Any, fastmath: set[str]) -> Any:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # there is no place on this machine to keep compiled code: each process compiles its own
        return numba.njit(**options)(function)
