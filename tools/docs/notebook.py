"""A notebook as a page: its text, and its code without what it printed."""

import json
from pathlib import Path


def as_markdown(book: Path) -> str:
    parts = []
    for cell in json.loads(book.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"
