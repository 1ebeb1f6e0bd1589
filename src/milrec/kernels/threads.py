"""One pool of threads for all heavy work: each worker runs whole tasks, and each task is single-threaded.

torch's own threads stay out of it (two pools on the same cores would wait for each other). What a task computes, and
the order in which results are put together, never depends on how many workers there are.
"""

from __future__ import annotations

import itertools
import math
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

_USERS_PER_TASK = 25

Task = Callable[[int], None]
T = TypeVar("T")


class Pool:
    """As many threads as there are cores, or as asked for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._pool = ThreadPoolExecutor(number - 1, "milrec", torch.set_num_threads, (1,)) if number > 1 else None

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks: each worker calls a task with its own number, and takes the next one as soon as it is free."""
        following = itertools.count()

        def work(worker: int) -> None:
            while (place := next(following)) < len(tasks):
                tasks[place](worker)

        helpers = (
            [self._pool.submit(work, worker) for worker in range(1, min(self.number, len(tasks)))] if self._pool else []
        )
        try:
            work(0)
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()


@contextmanager
def thread_pool(number: int | None = None) -> Iterator[Pool]:
    """A pool inside a `with` block; torch uses one thread meanwhile."""
    with one_torch_thread():
        pool = Pool(number or available())
        try:
            yield pool
        finally:
            if pool._pool is not None:
                pool._pool.shutdown()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def ahead(items: Iterator[T], number: int) -> Generator[T]:
    """The same items, made by a second thread, which is ahead of its reader by a number of them.

    An error there is raised here; when the reader leaves, the thread ends with the item it is at.
    """
    ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(maxsize=number)
    ended = threading.Event()

    def put(item: tuple[T] | BaseException | None) -> None:
        while not ended.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def make() -> None:
        try:
            for item in items:
                put((item,))
                if ended.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    worker = threading.Thread(target=make, daemon=True, name="milrec-ahead")
    worker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        ended.set()
        worker.join()


def over_users(kernel: Callable[..., Any], n_users: int, *parts: Any) -> list[Task]:
    """kernel(low, high, *parts) for all users, a few at a time."""

    def task(low: int) -> Task:
        return lambda worker: kernel(low, min(low + _USERS_PER_TASK, n_users), *parts)

    return [task(low) for low in range(0, n_users, _USERS_PER_TASK)]


def zeros(*shape: int, dtype: type[np.floating[Any]] = np.float32) -> Tensor:
    """A tensor in memory from NumPy, which uses large pages for large arrays: reading rows at random is faster there.

    It starts at a multiple of 64 bytes, since the start of a matrix can change how a product is rounded.
    """
    size = math.prod(shape)
    memory = np.zeros(size + 16, dtype=dtype)
    first = -memory.ctypes.data % 64 // memory.itemsize
    return torch.from_numpy(memory[first : first + size]).view(shape)


def available() -> int:
    """Cores that this process may use; OMP_NUM_THREADS can lower the number."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(asked)) if asked.isdecimal() and int(asked) > 0 else cores
