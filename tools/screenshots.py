"""make screenshots: the pictures of the documentation, taken in a browser from the demo's own pages.

Five pages, wide and on a phone, in light and dark: the explorer as it opens, with a taste, with 30 % of the long tail,
with the page of an item, and the top of the report of `milrec demo`. And a short silent film of the explorer.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
_SIZES = {"wide": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
_SCHEMES = ("light", "dark")
_PATIENCE = 120_000  # milliseconds
_QUALITY = 80  # of WebP
_FILM = (960, 600)  # pixels: a wide page, made smaller
_MOST_BYTES = 2_000_000  # of the film
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURES, help="folder for the pictures")
    parser.add_argument("--models", type=Path, default=Path("milrec-serve-demo"), help="folder of milrec serve-demo")
    parser.add_argument("--report", type=Path, default=Path("milrec-demo"), help="folder of milrec demo")
    given = parser.parse_args()
    page = report_page(given.report)
    given.out.mkdir(parents=True, exist_ok=True)
    with served_demo(given.models) as address, started_browser() as browser:
        for size in _SIZES:
            for scheme in _SCHEMES:
                take_pictures(browser, address, page, given.out, size, scheme)
        film(browser, address, given.out / "explorer.webp")
    for file in sorted(given.out.iterdir()):
        sys.stdout.write(f"{file.stat().st_size:>9,} bytes  {file}\n")


def report_page(run: Path) -> Path:
    """The report of `milrec demo`, which is run if it is not there yet."""
    if not (run / "report.html").exists():
        subprocess.run([sys.executable, "-m", "milrec", "demo", "--out", str(run)], check=True)
    return run / "report.html"


@contextmanager
def served_demo(models: Path) -> Iterator[str]:
    """The address of `milrec serve-demo`; it fits its models first, if they are not there yet."""
    command = [sys.executable, "-m", "milrec", "serve-demo", "--out", str(models), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+", said.replace("\n", "")):
                break
        else:
            raise SystemExit(f"milrec serve-demo did not start: {said}")
        try:
            yield found.group(0)
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def started_browser() -> Iterator[Browser]:
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=_ARGUMENTS, timeout=_PATIENCE)
        yield browser
        browser.close()


def take_pictures(browser: Browser, address: str, report: Path, out: Path, size: str, scheme: str) -> None:
    look = {"viewport": _SIZES[size], "color_scheme": scheme, "reduced_motion": "reduce"}
    context = browser.new_context(**look)
    context.set_default_timeout(_PATIENCE)
    page = context.new_page()

    def keep(name: str) -> None:
        save(page.screenshot(), out / f"{name}-{size}-{scheme}.webp")

    settled(page, address)
    keep("start")
    taste = f"{address}/#model=ce-point&model=mil&{items_of(page, address)}"
    settled(page, taste)
    keep("taste")
    settled(page, f"{address}/#model=ce-point&model=mil&user={user_of(page, address)}&long=0.3")
    keep("long-share")
    settled(page, taste)
    item = page.locator('[data-model="mil"] .item').nth(2).get_attribute("data-item")
    settled(page, f"{taste}&item={item}")
    expect(page.locator("#item-title")).to_be_visible()
    expect(page.locator("#item-view [aria-busy=true]")).to_have_count(0)  # what it is listed with comes later
    keep("item")
    page.goto(report.absolute().as_uri())
    keep("report")
    context.close()


def items_of(page: Page, address: str) -> str:
    """A taste around the example: one of its items, three that are like it, and something that is not."""
    told = page.request.get(f"{address}/v1/story").json()
    first = told["adopted"][0]["item"]
    near = page.request.get(f"{address}/v1/models/mil/items/{first}/similar?n=2").json()["items"]
    (popular,) = page.request.get(f"{address}/v1/models/mil/items?n=1").json()["items"]
    liked = "&".join(f"liked={item}" for item in [first, *(one["item"] for one in near)])
    return f"{liked}&disliked={popular['item']}"


def user_of(page: Page, address: str) -> str:
    (user,) = page.request.get(f"{address}/v1/models/mil/users?n=1").json()["users"]
    return str(user)


def settled(page: Page, url: str) -> None:
    """Open an address of the explorer, and wait until its lists stand still."""
    page.goto("about:blank")  # without it, another fragment alone would not load the page again
    page.goto(url)
    rest(page)


def rest(page: Page) -> None:
    expect(page.locator("#lists > *").first).to_be_attached()
    expect(page.locator("#lists")).to_have_attribute("aria-busy", "false")


def save(png: bytes, file: Path) -> None:
    Image.open(BytesIO(png)).convert("RGB").save(file, "WEBP", quality=_QUALITY, method=6)


def film(browser: Browser, address: str, file: Path) -> None:
    look = {"viewport": _SIZES["wide"], "color_scheme": "light", "reduced_motion": "reduce"}
    context = browser.new_context(**look)
    context.set_default_timeout(_PATIENCE)
    shots = list(scenes(context.new_page(), address))
    context.close()
    first, *more = [Image.open(BytesIO(png)).convert("RGB").resize(_FILM, Image.Resampling.LANCZOS) for png, _ in shots]
    lengths = [milliseconds for _, milliseconds in shots]
    first.save(file, "WEBP", save_all=True, append_images=more, duration=lengths, loop=0, quality=_QUALITY, method=6)
    if file.stat().st_size > _MOST_BYTES:
        raise SystemExit(f"{file} has {file.stat().st_size:,} bytes; it may have {_MOST_BYTES:,}")


def scenes(page: Page, address: str) -> Iterator[tuple[bytes, int]]:
    """The story, the thing to try, an item of the long tail, and what liking it does: pictures and milliseconds."""
    settled(page, address)
    yield page.screenshot(), 3500
    page.locator("#story-try").focus()
    yield page.screenshot(), 700
    page.locator("#story-try").click()
    rest(page)
    yield page.screenshot(), 3000
    found = page.locator('[data-model="mil"] .item:has(.tag.long) .title').first
    found.scroll_into_view_if_needed()
    found.hover()
    yield page.screenshot(), 1800
    title = found.text_content() or ""
    found.click()
    expect(page.locator("#item-title")).to_have_text(title)
    rest(page)
    yield page.screenshot(), 3500
    page.locator("#item-like").click()
    expect(page.locator("#liked-chips")).to_contain_text(title)
    rest(page)
    page.evaluate("scrollTo(0, 0)")
    yield page.screenshot(), 3500


if __name__ == "__main__":
    main()
