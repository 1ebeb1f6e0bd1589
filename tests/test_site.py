"""The documentation as a site: it builds strictly, every link in it leads somewhere, and it fetches nothing."""

import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tools.docs import commands, links, names, routes

import milrec
from milrec.cli.app import _COMMANDS

pytestmark = pytest.mark.xdist_group("site")  # it is built once
ROOT = Path(__file__).resolve().parents[1]
FETCHES = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}


class PageLinks(HTMLParser):
    """What a page links to, what it fetches, and the places in it that can be linked to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in FETCHES and FETCHES[tag] in values:
            self.fetched.append(values[FETCHES[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built as `make docs` builds it."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", place],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, PageLinks]:
    """Every page that was made from Markdown, by its address; kept reports are pages of their own, tested elsewhere."""
    found = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {name: PageLinks(path) for name, path in found.items() if not (ROOT / "docs" / name).exists()}


def targets(page: str, found: list[str]) -> Iterator[tuple[str, str]]:
    """(address on the site, place in that page) of each link that stays on the site."""
    for link in found:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
            yield (path if parts.path else page), unquote(parts.fragment)


def test_every_link_on_the_site_leads_to_a_page_and_a_place_in_it(site, pages):
    assert len(pages) > 35
    for name, page in pages.items():
        if name == "404.html":
            continue  # its links begin with /, as nobody knows where it is shown
        for target, place in targets(name, page.links + page.fetched):
            assert (site / target).is_file() or target == ".", f"{name} links to {target}"
            if place and target in pages:
                assert place in pages[target].places, f"{name} links to {target}#{place}"


def test_the_site_fetches_nothing_from_anywhere(site, pages):
    for name, page in pages.items():
        away = [link for link in page.fetched if urlsplit(link).netloc]
        assert not away, f"{name} fetches {away}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", sheet.read_text(encoding="utf-8")), sheet.name


def test_no_table_or_list_is_left_as_text(site, pages):
    """Python's Markdown wants an empty line before a list, which GitHub's does not."""
    for name in pages:
        text = (site / name).read_text(encoding="utf-8")
        assert not re.search(r"<p>(?:(?!</p>).)*?\n(?:- \S|\| )", text, flags=re.DOTALL), name
        assert "<p>| " not in text and "&lt;!--" not in text, name


def test_the_reference_has_every_public_name_command_and_route():
    python, cli, http = names.reference(), commands.reference(), routes.reference()
    for name in milrec.__all__:
        assert name == "__version__" or re.search(rf"^::: milrec[\w.]*\.{name}$", python, flags=re.MULTILINE), name
    for command in _COMMANDS:
        assert f"## milrec {command.__name__.replace('_', '-')}\n" in cli
    assert "### POST `/v1/recommend`\n" in http and "### GET `/v1/models/{name}`\n" in http
    assert "long_share" in http and "--long-share" in cli


def test_help_with_an_example_becomes_text_and_code():
    shown = commands.as_text("Fit a model *well*.\nAlways.\n\n\b\nmilrec fit split --out model\n\nmilrec fit --help")
    assert shown == (
        "Fit a model \\*well\\*. Always.\n\n"
        "```text\nmilrec fit split --out model\n```\n\n```text\nmilrec fit --help\n```"
    )


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[data](data.md#splits)", "[data](data.md#splits)"),
        ("[page](results/a.html)", "[page](results/a.html)"),
        ("[paper](https://arxiv.org/abs/1805.00121)", "[paper](https://arxiv.org/abs/1805.00121)"),
        ("[sets](../experiments/README.md#x)", "[sets](project/data-sets.md#x)"),
        ("[`losses.A`](../src/milrec/losses.py)", '<code title="src/milrec/losses.py">losses.A</code>'),
        ("[the file](../deploy/nginx.conf)", "the file (`deploy/nginx.conf`)"),
        ("```\n[a](../src/b.py)\n```", "```\n[a](../src/b.py)\n```"),
    ],
)
def test_links_that_leave_the_documents_become_text_or_pages_of_the_site(link, shown):
    assert links.within_site(link, "docs/page.md", "page.md") == shown


def test_links_of_a_page_from_elsewhere_start_from_where_its_file_is():
    shown = links.within_site("[log](docs/log.md), [code](src/a.py)", "CONTRIBUTING.md", "project/contributing.md")
    assert shown == "[log](../log.md), code (`src/a.py`)"
