"""A real browser for tests of pages."""

from contextlib import contextmanager

from playwright.sync_api import expect, sync_playwright

from pausing import LONG

_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
_PATIENCE = 1000 * LONG  # milliseconds: a busy machine is slow, not wrong
expect.set_options(timeout=_PATIENCE)


@contextmanager
def started_browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=_ARGUMENTS, timeout=_PATIENCE)
        yield chromium
        chromium.close()


@contextmanager
def new_tab(browser, **how):
    """A tab in a context of its own: viewport, colour scheme, …"""
    context = browser.new_context(**how)
    context.set_default_timeout(_PATIENCE)
    yield context.new_page()
    context.close()
