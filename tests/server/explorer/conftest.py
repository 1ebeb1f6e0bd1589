"""The demo's models, a server of them and a tab that shows the explorer page."""

from dataclasses import replace

import pyarrow as pa
import pytest

import milrec
from browsing import new_tab
from exploring import HOSTILE, served
from milrec.cli.serve import demo_models
from milrec.data.simulation import Simulation, simulate
from milrec.storage import MANIFEST
from pausing import LONG


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The demo's three models, small, of a catalogue whose most popular title is hostile."""
    data = simulate(Simulation(n_users=200, n_items=260, mean_shown=60), seed=1)
    titles = data.items["title"].to_pylist()
    titles[int(data.popularity().argmax())] = HOSTILE
    place = data.items.column_names.index("title")
    data = replace(data, items=data.items.set_column(place, "title", pa.array(titles, type=pa.large_string())))
    out = tmp_path_factory.mktemp("explorer") / "demo"
    milrec.split_interactions(data, seed=0).save(out / "split")
    return demo_models(out, epochs=6, n_factors=16)


@pytest.fixture(scope="session")
def recommenders(folders):
    return {folder.name: milrec.Recommender.load(folder) for folder in folders}


@pytest.fixture(scope="session")
def uncertain(folders):
    """One of the models without its probabilities, as 0.1 saved it."""
    out = folders[0].parent.parent / "uncertain"
    milrec.Recommender(replace(milrec.load(folders[2]).fitted, calibration=None)).save(out)
    return out


@pytest.fixture(scope="session")
def address(folders):
    before = [(folder / MANIFEST).stat().st_mtime_ns for folder in folders]
    with served("serve-demo", "--out", str(folders[0].parent)) as address:
        yield address
    assert [(folder / MANIFEST).stat().st_mtime_ns for folder in folders] == before  # found, not fitted again


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all tests of a module: a new one costs more than a test."""
    with new_tab(browser, reduced_motion="reduce") as page:
        page.context.route("**/web/story.js", patiently)
        yield page


def patiently(route):
    """A page that waits for its example however slow the machine is."""
    answer = route.fetch()
    assert "PATIENCE = 1500" in answer.text()
    route.fulfill(response=answer, body=answer.text().replace("PATIENCE = 1500", f"PATIENCE = {1000 * LONG}"))


@pytest.fixture
def opened(tab, address):
    """Open an address of the page; at the end no script may have failed, and nobody else been asked."""
    bases, asked, wrong = {address}, [], []
    listeners = {
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda request: asked.append(request.url),
        "console": lambda said: wrong.append(said.text) if said.type == "error" else None,
    }
    for event, listener in listeners.items():
        tab.on(event, listener)

    def open_page(path="", base=address, width=1280):
        bases.add(base)
        tab.set_viewport_size({"width": width, "height": 844})
        tab.goto("about:blank")  # without it, another fragment alone would not reload the page
        tab.goto(f"{base}/{path}")
        return tab

    yield open_page
    tab.unroute_all(behavior="ignoreErrors")
    tab.goto("about:blank")
    tab.emulate_media(reduced_motion="reduce", color_scheme="light")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert not [said for said in wrong if "Failed to load" not in said]
    assert not [url for url in asked if not url.startswith((*bases, "about:"))]
