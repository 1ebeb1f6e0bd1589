"""What many tests share: tiny data with a right answer, and the real data where it is at hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import milrec
from milrec.data.interactions import Interactions

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def real_data(name: str) -> Path:
    """The folder of a real data set, or a skip that says why."""
    folder = REAL_DATA / name
    if not folder.is_dir():
        pytest.skip(f"the real data set '{name}' is not on this machine")
    return folder


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
