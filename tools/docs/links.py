"""Links of a page in the repository, as links of the site.

On the site there is no source code to link to, so what is linked to a file outside docs/ becomes plain text, with the
path of the file where the pointer rests on it. A few such files are pages of the site themselves.
"""

import posixpath
import re
from html import escape

ELSEWHERE = {  # pages that are kept outside docs/ → their place on the site
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "SECURITY.md": "project/vulnerabilities.md",
    "experiments/README.md": "project/data-sets.md",
}
_ON_THE_SITE = {**ELSEWHERE, "README.md": "index.md"}
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def within_site(markdown: str, source: str, place: str) -> str:
    """The text of a page at `place` of the site, whose file is `source` in the repository."""

    def one(found: re.Match[str]) -> str:
        return _link(found[1], found[2], source, place)

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(one, part) for part in parts)


def _link(label: str, target: str, source: str, place: str) -> str:
    path, mark, anchor = target.partition("#")
    if "://" in target or target.startswith("mailto:") or not path:
        return f"[{label}]({target})"
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    inside = re.sub(r"\.ipynb$", ".md", file.removeprefix("docs/")) if file.startswith("docs/") else None
    shown = _ON_THE_SITE.get(file, inside)
    if shown is not None:
        return f"[{label}]({posixpath.relpath(shown, posixpath.dirname(place) or '.')}{mark}{anchor})"
    if label.startswith("`"):
        return f'<code title="{escape(file)}">{escape(label.strip("`"))}</code>'
    return f"{label} (`{file}`)"
