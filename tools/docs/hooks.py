"""What mkdocs does besides rendering pages: parts made from the code, pages from outside docs/, links that leave it."""

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs puts only this folder there

from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402
from mkdocs.structure.pages import Page  # noqa: E402
from tools.docs import commands, names, notebook, routes, settings  # noqa: E402
from tools.docs.links import ELSEWHERE, within_site  # noqa: E402

PARTS = {
    "commands": commands.reference,
    "names": names.reference,
    "routes": routes.reference,
    "settings": settings.reference,
}
_PART = re.compile(r"^<!-- made from the code: (\w+) -->\n(?:.+\n)*", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Pages that are kept elsewhere in the repository, and notebooks as pages."""
    for source, place in ELSEWHERE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    for book in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        place = f"notebooks/{book.stem}.md"
        files.append(File.generated(config, place, content=notebook.as_markdown(book)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """A page as the site shows it."""
    place = page.file.src_uri
    source = next((name for name, shown in ELSEWHERE.items() if shown == place), f"docs/{place}")
    filled = _PART.sub(lambda found: PARTS[found[1]](), markdown)
    return within_site(_COMMENT.sub("", filled), source, place)
