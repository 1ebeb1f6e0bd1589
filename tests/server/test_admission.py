"""Admission: what would wait too long is refused at once; how much that is, the server measures."""

import pytest

from milrec.errors import BusyError
from milrec.server.gate.admission import Capacity
from milrec.server.limits import Limits

FIRST = 64  # lists at a time before anything was measured


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("milrec.server.gate.admission.time.monotonic", lambda: self.now)


class Work:
    """A server that makes lists at a steady pace, and is asked for more than it can do."""

    def __init__(self, capacity: Capacity, clock: Clock) -> None:
        self.capacity, self.clock = capacity, clock
        self.under_way: list = []

    def fill(self) -> None:
        while not self.capacity.full():
            taken = self.capacity.take(1)
            taken.__enter__()
            self.under_way.append(taken)

    def busy(self, seconds: float, per_second: float) -> None:
        """As much as can be done, and no more."""
        for _ in range(round(seconds * per_second)):
            self.clock.now += 1 / per_second
            self.under_way.pop(0).__exit__(None, None, None)
            self.under_way.append(self.capacity.take(1))
            self.under_way[-1].__enter__()

    def overload(self, seconds: float, per_second: float) -> None:
        for _ in range(round(seconds * per_second)):
            self.fill()
            self.clock.now += 1 / per_second
            self.under_way.pop(0).__exit__(None, None, None)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.mark.parametrize("per_second", [3, 40, 400, 1_500])
def test_as_much_is_taken_on_as_is_done_in_the_time_allowed(clock, per_second):
    capacity = Capacity(Limits(max_wait=0.25, max_running=10_000), lambda: 0.0)
    work = Work(capacity, clock)
    work.overload(10, per_second)
    assert capacity.limit == pytest.approx(max(0.25 * per_second, 1), rel=0.2, abs=0.6)


def test_the_time_of_a_portion_is_allowed_for(clock):
    capacity = Capacity(Limits(max_wait=0.25), lambda: 1.0)
    work = Work(capacity, clock)
    work.overload(30, 64)
    assert capacity.limit == pytest.approx(1.25 * 64, rel=0.1)


def test_what_was_measured_follows_the_server(clock):
    capacity = Capacity(Limits(max_wait=0.25), lambda: 0.0)
    work = Work(capacity, clock)
    work.overload(5, 400)
    work.overload(5, 40)
    assert capacity.limit == pytest.approx(10, rel=0.2)
    work.overload(5, 400)
    assert capacity.limit == pytest.approx(100, rel=0.2)


def test_nothing_is_measured_unless_something_is_refused(clock):
    """One list after another takes longer than many at a time: that says nothing about what the server can do."""
    capacity = Capacity(Limits(), lambda: 0.0)
    for _ in range(100):
        assert not capacity.full()
        with capacity.take(1):
            clock.now += 1
    assert capacity.limit == FIRST


def test_time_in_which_there_is_nothing_to_do_is_not_counted(clock):
    capacity = Capacity(Limits(max_wait=0.25, max_running=10_000), lambda: 0.0)
    work = Work(capacity, clock)
    work.overload(5, 400)
    measured = capacity.limit
    for _ in range(10):
        while work.under_way:
            clock.now += 1 / 400
            work.under_way.pop().__exit__(None, None, None)
        clock.now += 1_000
        work.overload(1, 400)
    assert capacity.limit == pytest.approx(measured, rel=0.1)


def test_refusals_now_and_then_tell_as_much_as_many(clock):
    """At the limit of what it can do, a server refuses one request in a while, and works at full speed in between."""
    capacity = Capacity(Limits(max_wait=0.25, max_running=10_000), lambda: 0.0)
    work = Work(capacity, clock)
    work.overload(5, 400)
    for _ in range(20):
        work.busy(0.6, 400)
        work.overload(0.3, 400)
    assert capacity.limit == pytest.approx(100, rel=0.1)


def test_a_slow_moment_is_forgotten(clock):
    capacity = Capacity(Limits(max_wait=0.25), lambda: 0.0)
    work = Work(capacity, clock)
    work.overload(5, 10)
    assert capacity.limit < 5 and capacity.full()
    clock.now += 2
    assert not capacity.full() and capacity.limit == FIRST


def test_a_server_with_nothing_to_do_takes_on_whatever_it_may(clock):
    capacity = Capacity(Limits(max_wait=0.001), lambda: 0.0)
    work = Work(capacity, clock)
    work.overload(5, 10)
    assert capacity.limit == 1
    while work.under_way:
        work.under_way.pop().__exit__(None, None, None)
    assert capacity.limit == 1
    capacity.check(100)
    with capacity.take(1):
        capacity.check(99, own=1)
        with pytest.raises(BusyError, match="the server is busy; try again in a second"):
            capacity.check(1)
    with pytest.raises(BusyError):
        capacity.check(513)
