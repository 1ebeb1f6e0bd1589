"""The pool of threads: every task once, errors reach the caller, and torch is left as it was."""

import os
import sys
import threading
from concurrent.futures import wait
from functools import partial

import numpy as np
import pytest
import torch

from milrec.kernels.threads import Pool, ahead, available, over_users, thread_pool

LONG = 300  # seconds after which a test that waits has failed


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize("number", [1, 2, 3, 7])
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 50])
def test_every_task_runs_once_with_the_number_of_a_worker(number, n_tasks):
    runs: list[tuple[int, int]] = []

    def noted(task, worker):
        runs.append((task, worker))

    with thread_pool(number) as pool:
        assert pool.number == number
        pool.run([partial(noted, task) for task in range(n_tasks)])
    assert sorted(task for task, _ in runs) == list(range(n_tasks))
    assert all(0 <= worker < number for _, worker in runs)


def test_workers_work_at_the_same_time_and_each_has_a_number_of_its_own():
    together = threading.Barrier(3)
    seen: list[tuple[int, int]] = []

    def task(worker):
        together.wait(LONG)
        seen.append((worker, threading.get_ident()))

    with thread_pool(3) as pool:
        pool.run([task] * 3)
    assert sorted(worker for worker, _ in seen) == [0, 1, 2]
    assert len({thread for _, thread in seen}) == 3
    assert dict(seen)[0] == threading.get_ident()  # who asks is worker 0


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_error_in_a_task_reaches_the_caller_and_the_pool_still_works(number):
    done: list[int] = []

    def failing(worker):
        raise ValueError("no")

    def succeeding(task, worker):
        done.append(task)

    with thread_pool(number) as pool:
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                pool.run([failing] * 4)
        pool.run([partial(succeeding, task) for task in range(9)])
    assert sorted(done) == list(range(9))


@pytest.mark.parametrize("who", ["caller", "helper"])
def test_an_error_reaches_the_caller_from_whichever_thread_it_is_raised_in(who):
    together = threading.Barrier(2)
    done: list[int] = []

    def task(worker):
        together.wait(LONG)
        if (worker == 0) == (who == "caller"):
            raise ValueError(f"raised by worker {worker}")
        done.append(worker)

    with thread_pool(2) as pool:
        with pytest.raises(ValueError, match=f"raised by worker {0 if who == 'caller' else 1}"):
            pool.run([task] * 2)
        assert done == [1 if who == "caller" else 0]
        pool.run([lambda worker: done.append(7)] * 2)
    assert done[1:] == [7, 7]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_no_task_is_still_running_when_an_error_reaches_the_caller(failing, monkeypatch):
    """Helpers end no earlier than the caller waits for them."""
    together, awaited = threading.Barrier(3), threading.Event()
    done: list[int] = []

    def announced(helpers):
        awaited.set()
        return wait(helpers)

    monkeypatch.setattr(sys.modules[Pool.__module__], "wait", announced)

    def task(worker):
        together.wait(LONG)
        if worker == failing:
            raise ValueError("no")
        assert worker == 0 or awaited.wait(LONG)
        done.append(worker)

    with thread_pool(3) as pool:
        with pytest.raises(ValueError, match="no"):
            pool.run([task] * 3)
        assert sorted(done) == sorted({0, 1, 2} - {failing})


@pytest.mark.parametrize("end", ["well", "failed", "interrupted"])
def test_torch_has_one_thread_meanwhile_and_as_many_as_before_afterwards(end):
    before = torch.get_num_threads()
    errors = {"failed": ValueError, "interrupted": KeyboardInterrupt}
    counts: list[int] = []

    def task(worker):
        counts.append(torch.get_num_threads())
        if end in errors:
            raise errors[end]

    def whole():
        with thread_pool(2) as pool:
            assert torch.get_num_threads() == 1
            pool.run([task] * 2)

    torch.set_num_threads(2)
    try:
        if end == "well":
            whole()
        else:
            with pytest.raises(errors[end]):
                whole()
        assert torch.get_num_threads() == 2
        assert set(counts) == {1}
    finally:
        torch.set_num_threads(before)


def test_no_thread_is_left_behind():
    before = set(threading.enumerate())  # a server of other tests may be running
    with thread_pool(3) as pool:
        pool.run([lambda worker: None] * 9)
        workers = set(threading.enumerate()) - before
        assert workers
    assert not workers & set(threading.enumerate())


def test_one_worker_needs_no_pool():
    seen: set[int] = set()
    Pool(1).run([lambda worker: seen.add(threading.get_ident())] * 5)
    assert seen == {threading.get_ident()}


def test_workers_may_be_asked_for_while_there_are_others():
    before = torch.get_num_threads()
    done: list[str] = []
    with thread_pool(2) as outer:
        with thread_pool(3) as inner:
            inner.run([lambda worker: done.append("inner")] * 4)
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
        outer.run([lambda worker: done.append("outer")] * 4)
    assert sorted(done) == ["inner"] * 4 + ["outer"] * 4
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("text", ["", "0", "-3", "many", "1.5", "100000"])
def test_a_number_of_threads_that_says_nothing_or_too_much_leaves_all_cores(monkeypatch, text):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert available() == cores()


def test_the_environment_may_ask_for_fewer_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available() == 1
    with thread_pool() as pool:
        assert pool.number == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert available() == cores()
    with thread_pool() as pool:
        assert pool.number == cores()


@pytest.mark.parametrize("n_users", [0, 1, 24, 25, 26, 260])
def test_tasks_over_users_take_every_user_once(n_users):
    seen = np.zeros(n_users, dtype=int)

    def kernel(low, high, out):
        assert 0 <= low < high <= n_users
        out[low:high] += 1

    with thread_pool(2) as pool:
        pool.run(over_users(kernel, n_users, seen))
    assert (seen == 1).all()


def test_items_that_are_made_ahead_come_in_their_order():
    assert list(ahead(iter(range(100)), 3)) == list(range(100))
    assert list(ahead(iter([None, 0]), 1)) == [None, 0]


def test_no_more_items_are_made_ahead_than_asked_for():
    made = []

    def make():
        for number in range(100):
            made.append(number)
            yield number

    items = ahead(make(), 2)
    assert next(items) == 0
    items.close()  # the thread has ended
    assert len(made) <= 5


def test_an_error_of_the_thread_that_is_ahead_reaches_the_reader():
    def make():
        yield 1
        raise KeyError("wrong")

    items = ahead(make(), 2)
    assert next(items) == 1
    with pytest.raises(KeyError, match="wrong"):
        next(items)
