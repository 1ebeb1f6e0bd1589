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
    options = {"contract", "reassoc", "nsz", "arcp"}
    return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=options)(function)


def inlined(function: Any) -> Any:
    """The same, as a part of whoever calls it: code then does not depend on which function was compiled first."""
    return numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")(function)
