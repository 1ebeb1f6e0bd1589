"""Models that are not fitted by gradient descent: popularity, EASE, SLIM, weighted matrix factorization.

X is 1 where a user adopted an item, else 0. EASE and SLIM work on the Gram matrix X'X, dense over items × items; sparse
EASE on its cells that are not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, csr_matrix

from milrec.data.interactions import Interactions
from milrec.errors import FitError
from milrec.kernels.gram import UNSETTLED, ease_rows, gram_rows, inverse_rows, mirror_rows, slim_columns
from milrec.kernels.inverse import invert, n_blocks
from milrec.kernels.neighbours import count_together, fill_together, neighbour_weights, rows_by_source, working_memory
from milrec.kernels.threads import Pool, Task, available, over_users, thread_pool, zeros
from milrec.models.contract import Model
from milrec.models.factorization import WeightedFactorization
from milrec.models.item_to_item import ItemToItem, SparseItemToItem
from milrec.models.popularity import Popularity
from milrec.models.settings import EaseSettings, ModelSettings, SlimSettings, SparseEaseSettings
from milrec.training.progress import Progress, Watch

_DOUBLE_PRECISION = 10_000  # rows of a matrix up to which EASE inverts it in double precision
_TOLERANCE = 1e-5  # SLIM has settled when a sweep changes no weight by more than this part of the largest
_MOST_SWEEPS = 1_000
_RESIDUE = 1e-6  # sparse EASE has solved a regression when this part of its right side is left
_MOST_STEPS = 1_000
_TASKS_AT_ONCE = 8  # of each worker, between two reports
_ITEMS_PER_TASK = 25
_MEMORY_FACTS = Path("/proc/meminfo")

Done = Callable[[int, int], None]  # steps done, of how many
Pairs = tuple[npt.NDArray[Any], ...]  # sparse rows: where each begins, and what is in them
Memory = Sequence[tuple[npt.NDArray[Any], ...]]  # of each worker
Solver = Callable[[Any, Interactions, int, Done], None]


def check_memory(settings: ModelSettings, n_users: int, n_items: int) -> None:
    """Refuse a model whose items × items matrices cannot be held, before anything is allocated."""
    _check_bytes(_bytes_needed(settings, n_users, n_items), settings, n_items)


def _check_bytes(needed: int, settings: ModelSettings, n_items: int) -> None:
    free = _available_memory()
    if free is not None and needed > free:
        smaller = "dae or mf" if settings.model == "ease-sparse" else "ease-sparse, dae or mf"
        raise FitError(
            f"model '{settings.model}' needs {needed / 2**30:.1f} GiB of memory for {n_items:,} items, and "
            f"{free / 2**30:.1f} GiB are available; prepare the data with a higher min_per_item, or fit {smaller}"
        )


def fit(model: Model, train: Interactions, seed: int, watch: Watch) -> None:
    """Find the weights of a model that was just built."""

    def done(step: int, total: int) -> None:
        if watch.report is not None:
            watch.report(Progress(step, total))

    _SOLVERS[model.settings.model](model, train, seed, done)
    if not all(bool(value.sum().isfinite()) for value in model.parameters()):
        raise FitError("the weights are not finite; choose less extreme settings")
    model.eval()


def _count_adopters(model: Popularity, train: Interactions, seed: int, done: Done) -> None:
    with torch.no_grad():
        model.decoder_bias.copy_(torch.from_numpy(train.popularity().astype(np.float32)))


def _fit_ease(model: ItemToItem, train: Interactions, seed: int, done: Done) -> None:
    """B = I - P / diag(P) by columns, where P = (X'X + λI)⁻¹ (Steck, Embarrassingly Shallow Autoencoders, 2019).

    With few users P is found from a smaller inverse: P = (I - X'MX) / λ, where M = (XX' + λI)⁻¹ (Woodbury).
    """
    weight, adopted, settings = model.item_weight.numpy(), train.adopted, cast(EaseSettings, model.settings)
    by_users = _by_users(*adopted.shape)
    blocks = n_blocks(adopted.shape[0 if by_users else 1])

    def inverted(block: int) -> None:
        done(block, blocks + 1)

    if by_users:
        by_item = csr_array(adopted.T)
        middle = _ridge_inverse(by_item, settings.regularization, inverted)
        inverse = weight
        parts = (by_item.indptr, by_item.indices, adopted.indptr, adopted.indices)
        with thread_pool() as pool:
            pool.run(over_users(mirror_rows, len(middle), middle))
            pool.run(over_users(inverse_rows, len(weight), *parts, middle, settings.regularization, inverse))
    else:
        inverse = _ridge_inverse(adopted, settings.regularization, inverted, weight)
    with thread_pool() as pool:
        pool.run(over_users(ease_rows, len(weight), inverse, inverse.diagonal().copy(), weight))
    inverted(blocks + 1)


def _ridge_inverse(
    adopted: csr_array,
    regularization: float,
    done: Callable[[int], None],
    memory: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]:
    """(X'X + λI)⁻¹ below its diagonal; a large one in single precision, in the zeroed memory, if any is given."""
    done(0)
    n = adopted.shape[1]
    double = n <= _DOUBLE_PRECISION
    if double or memory is None:
        memory = zeros(n, n, dtype=np.float64 if double else np.float32).numpy()
    gram = memory
    with thread_pool() as pool:
        _fill_gram(gram, adopted, pool)
    gram[np.diag_indices_from(gram)] += regularization
    if not invert(torch.from_numpy(gram), done):
        raise FitError(f"EASE has no solution in {'double' if double else 'single'} precision; raise regularization")
    return gram


def _fit_slim(model: ItemToItem, train: Interactions, seed: int, done: Done) -> None:
    """For each item j the w ≥ 0 with w_j = 0 that minimises ½‖x_j - Xw‖² + l2/2·‖w‖² + l1·‖w‖₁ (Ning and Karypis)."""
    weight, adopted, settings = model.item_weight.numpy(), train.adopted, cast(SlimSettings, model.settings)
    n_items = len(weight)
    gram, endings = np.zeros_like(weight), np.zeros(n_items, dtype=np.int8)
    done(0, n_items)
    with thread_pool() as pool:
        _fill_gram(gram, adopted, pool)
        limits = (settings.l1, settings.l2, _TOLERANCE, _MOST_SWEEPS)
        diagonal = gram.diagonal().astype(np.float64)
        tasks = over_users(slim_columns, n_items, gram, diagonal, *limits, weight, endings)
        for _ in _run_by_and_by(tasks, pool):
            done(int(np.count_nonzero(endings)), n_items)
            if (endings == UNSETTLED).any():
                raise FitError(
                    f"SLIM's weights have not settled after {_MOST_SWEEPS:,} sweeps; raise l2 (now {settings.l2:g})"
                )


def _fit_sparse_ease(model: SparseItemToItem, train: Interactions, seed: int, done: Done) -> None:
    """Weights to item j from its neighbours N: (G_NN + λI)⁻¹ G_Nj, where G = X'X. All its other weights are 0.

    N are the items most like j by the cosine of their columns of X. If N is all other items, these are EASE's own
    weights, -P_Nj / P_jj where P = (G + λI)⁻¹. Only cells of G that are not 0 are held, and each once: those below its
    diagonal, with the most popular items first, since no row is long then.
    """
    settings, n_items = model.settings, train.n_items
    order, pairs = _by_popularity(train.adopted)
    n_neighbours = min(settings.neighbours, n_items - 1)
    shape = (n_items, n_neighbours)
    neighbours, weights = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.float32)
    endings = np.zeros(n_items, dtype=np.int8)
    done(0, n_items)
    with thread_pool() as pool:
        memory = [working_memory(n_items, n_neighbours) for _ in range(pool.number)]
        together = _items_together(pairs, settings, memory, pool)
        adopters, limits = np.diff(pairs[0]).astype(np.float64), (settings.regularization, _RESIDUE, _MOST_STEPS)
        parts = (pairs, together, adopters, limits, (neighbours, weights, endings))
        for _ in _run_by_and_by(_over_items(neighbour_weights, n_items, parts, memory), pool):
            done(int(np.count_nonzero(endings)), n_items)
            if (endings == UNSETTLED).any():
                raise FitError(
                    f"weights of '{settings.model}' have not settled after {_MOST_STEPS:,} steps; "
                    f"raise regularization (now {settings.regularization:g})"
                )
    model.take(rows_by_source(order, neighbours, weights))


def _by_popularity(adopted: csr_array) -> tuple[npt.NDArray[np.int64], Pairs]:
    """The items by number of adopters, the most adopted first; and X with the items in this order, both ways."""
    popularity = np.bincount(adopted.indices, minlength=adopted.shape[1])
    order = np.argsort(-popularity, kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    parts = (np.ones(adopted.nnz, dtype=np.float32), ranks[adopted.indices].astype(np.int32), adopted.indptr)
    by_user = csr_array(parts, shape=adopted.shape)
    by_user.sort_indices()
    by_item = csr_array(by_user.T)
    return order, tuple(
        part.astype(kind)
        for one in (by_item, by_user)
        for part, kind in ((one.indptr, np.int64), (one.indices, np.int32))
    )


def _items_together(pairs: Pairs, settings: SparseEaseSettings, memory: Memory, pool: Pool) -> Pairs:
    """For each item the more popular ones that somebody adopted with it: (indptr, items, how many did)."""
    n_items = len(pairs[0]) - 1
    lengths = np.zeros(n_items, dtype=np.int64)
    for _ in _run_by_and_by(_over_items(count_together, n_items, (pairs, lengths), memory), pool):
        pass
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    _check_bytes(8 * int(indptr[-1]) + _bytes_needed(settings, 0, n_items), settings, n_items)
    together = (indptr, np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32))
    for _ in _run_by_and_by(_over_items(fill_together, n_items, (pairs, *together), memory), pool):
        pass
    return together


def _fit_wmf(model: WeightedFactorization, train: Interactions, seed: int, done: Done) -> None:
    """Alternating least squares of `implicit`: Σ c·(1 - x·y)² over adopted + Σ (x·y)² over missing + λ(‖X‖² + ‖Y‖²)."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
        from implicit.recommender_base import ModelFitError
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise FitError("model 'wmf' needs the package implicit: pip install 'milrec[wmf]'") from None
    settings, adopted = model.settings, train.adopted
    parts = (np.ones(adopted.nnz, dtype=np.float32), adopted.indices, adopted.indptr)
    done(0, settings.iterations)
    with threadpool_limits(1, "blas"):  # as implicit asks for: its own threads need the cores
        squares = AlternatingLeastSquares(
            factors=settings.n_factors,
            regularization=settings.regularization,
            alpha=settings.confidence,
            iterations=settings.iterations,
            num_threads=available(),
            random_state=seed,
        )
        try:
            squares.fit(
                csr_matrix(parts, shape=adopted.shape),
                show_progress=False,
                callback=lambda iteration, seconds, loss: done(iteration + 1, settings.iterations),
            )
        except ModelFitError:
            raise FitError("the factors are not finite; change regularization or confidence") from None
    with torch.no_grad():
        model.encoder_weight.copy_(torch.from_numpy(squares.user_factors))
        model.decoder_weight.copy_(torch.from_numpy(squares.item_factors))


def _fill_gram(gram: npt.NDArray[Any], adopted: csr_array, pool: Pool) -> None:
    """X'X into zeroed memory: in each cell how many users adopted both items."""
    by_item = csr_array(adopted.T)
    parts = (by_item.indptr, by_item.indices, adopted.indptr, adopted.indices)
    pool.run(over_users(gram_rows, len(gram), *parts, gram))


def _over_items(kernel: Callable[..., Any], n_items: int, parts: tuple[Any, ...], memory: Memory) -> list[Task]:
    """kernel(low, high, *parts, memory of the worker) for all items, a few at a time."""

    def task(low: int) -> Task:
        return lambda worker: kernel(low, min(low + _ITEMS_PER_TASK, n_items), *parts, memory[worker])

    return [task(low) for low in range(0, n_items, _ITEMS_PER_TASK)]


def _run_by_and_by(tasks: Sequence[Task], pool: Pool) -> Iterator[None]:
    """Run tasks, a few of each worker at a time: between them a fit says how far it is, or is interrupted."""
    at_once = _TASKS_AT_ONCE * pool.number
    for first in range(0, len(tasks), at_once):
        pool.run(tasks[first : first + at_once])
        yield


def _by_users(n_users: int, n_items: int) -> bool:
    """Whether EASE inverts a matrix over users: an eighth of the work or less, with at most half more memory."""
    return 2 * n_users <= n_items


def _bytes_needed(settings: ModelSettings, n_users: int, n_items: int) -> int:
    """For the matrices that a fit holds at once: the weights, and a Gram matrix or an inverse.

    Sparse EASE has its weights twice, by target and by source, and a matrix of neighbours in each worker.
    """
    cells = n_items**2
    if settings.model == "ease-sparse":
        n_neighbours = min(cast(SparseEaseSettings, settings).neighbours, n_items)
        return 2 * (4 + 4) * n_items * n_neighbours + 4 * available() * n_neighbours**2
    if settings.model == "slim":
        return (4 + 4) * cells
    if settings.model != "ease":
        return 0
    if _by_users(n_users, n_items):
        return 4 * cells + (8 if n_users <= _DOUBLE_PRECISION else 4) * n_users**2
    return (4 + 8 if n_items <= _DOUBLE_PRECISION else 4) * cells


def _available_memory() -> int | None:
    """Bytes of memory that are available, if this machine says so."""
    try:
        lines = _MEMORY_FACTS.read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


_SOLVERS: dict[str, Solver] = {
    "popularity": _count_adopters,
    "ease": _fit_ease,
    "ease-sparse": _fit_sparse_ease,
    "slim": _fit_slim,
    "wmf": _fit_wmf,
}
