"""The explorer page in tests: a server for it, and what a visitor does and sees there."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import expect

from pausing import LONG

HOSTILE = '<img src="x" onerror="document.title = 1"><b>Bold</b> & "quoted"'


NAMES = ["ce-point", "multinomial", "mil"]
LABELS = {
    "ce-point": "Cross-entropy",
    "multinomial": "Multinomial cross-entropy",
    "mil": "Missing-information loss",
}


@contextmanager
def served(*arguments):
    """The address of a server of our own, once it answers; it ends in good order."""
    command = [sys.executable, "-m", "milrec", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+", said.replace("\n", "")):
                break
        assert found, said
        try:
            yield found.group(0)
        finally:  # a test that fails ends its server too
            process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0


def settled(page):
    """Wait until the lists stand still."""
    expect(page.locator("#lists > *").first).to_be_attached()
    expect(page.locator("#lists")).to_have_attribute("aria-busy", "false")


def listed(page, model):
    return page.locator(f'#lists [data-model="{model}"] .item').evaluate_all(
        "rows => rows.map(row => row.dataset.item)"
    )


def fragment(page):
    return parse_qs(urlsplit(page.url).fragment)


def open_empty(opened, path=""):
    """The page without its example: a taste with nothing in it."""
    page = opened(path)
    settled(page)
    page.get_by_role("button", name="Start with an empty taste").click()
    expect(page.locator(".invitation")).to_be_visible()
    settled(page)
    return page


def add(page, box, text):
    """Search and take the first that is found, with the keyboard alone; its id."""
    settled(page)  # the field cannot take the focus while the models are being fetched
    page.locator(f"#{box}").focus()
    expect(page.locator(f"#{box}")).to_be_focused()
    page.keyboard.type(text)
    expect(page.locator(f"#{box}-options li").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(f"#{box}-chips li").last).to_be_visible()
    settled(page)
    return fragment(page)[box][-1]


def titles_of(recommender):
    items = recommender.fitted.train.items
    return dict(zip(items["id"].to_pylist(), items["title"].to_pylist(), strict=True))
