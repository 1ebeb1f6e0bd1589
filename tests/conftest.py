"""What many tests share: tiny data with a right answer, and the real data where it is at hand."""

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

import milrec
from milrec.data.interactions import Interactions

REAL_DATA = os.environ.get("MILREC_TEST_DATA")  # a folder of real data sets; `make test` sets it where there is one

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell, which the processes that tests
    signal.signal(signal.SIGINT, signal.default_int_handler)  # interrupt would inherit


def real_data(name: str) -> Path:
    """The folder of a real data set, or a file beside the folder of them all; or a skip that says why."""
    if not REAL_DATA:
        pytest.skip(f"MILREC_TEST_DATA does not say where '{name}' is")
    place = Path(REAL_DATA) / name
    if not place.exists():
        pytest.skip(f"there is no '{name}' in MILREC_TEST_DATA ('{REAL_DATA}')")
    return place


@pytest.fixture(scope="module")  # not longer: Playwright's event loop would be in the way of other tests' own
def browser():
    from browsing import started_browser

    with started_browser() as browser:
        yield browser


@pytest.hookimpl(tryfirst=True)  # before pytest itself leaves tests out by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the fixture `browser`, so that -m 'not browser' runs where there is none."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def checkerboard() -> Interactions:
    """Even users adopt even items, odd users odd items, each but one of them: the right recommendation is that one."""
    n_users, n_items = 60, 20
    users, items = np.nonzero(np.add.outer(np.arange(n_users), np.arange(n_items)) % 2 == 0)
    withheld = items // 2 == (users // 2) % (n_items // 2)
    table = pa.table({"user": users[~withheld], "item": items[~withheld]})
    return milrec.read(table)


@pytest.fixture(scope="session")
def small_catalogue() -> Interactions:
    """A simulated catalogue that is fitted in a second or two."""
    return milrec.simulate(milrec.Simulation(n_users=300, n_items=120, mean_shown=60), seed=0)
