"""How loops are compiled: where there is no place to keep compiled code, they are compiled all the same."""

import numba

from milrec.kernels import jit as module


def test_without_a_place_to_keep_compiled_code_loops_are_compiled_all_the_same(monkeypatch):
    real = numba.njit

    def nowhere(*args, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **options)

    monkeypatch.setattr(numba, "njit", nowhere)

    def doubled(x):
        return 2 * x

    assert module.compiled(doubled)(3) == 6
