"""The notebooks as pages of the site, with what they printed and drew."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path


def pages(folder: Path) -> dict[str, str]:
    """Returns path -> Markdown of the notebooks of a folder."""
    return {f"{folder.name}/{path.stem}.md": page(json.loads(path.read_text("utf-8")))
            for path in sorted(folder.glob("*.ipynb"))}  # fmt: skip


def page(notebook: Mapping) -> str:
    """Returns a notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        else:
            parts += [f"```python\n{text}\n```", *_outputs(cell)]
    return "\n\n".join(parts) + "\n"


def _outputs(cell: Mapping) -> Iterator[str]:
    """Yields what a cell printed and drew."""
    for output in cell["outputs"]:
        if "text" in output:
            yield f"```text\n{''.join(output['text']).rstrip()}\n```"
        elif png := output.get("data", {}).get("image/png"):
            yield f"![figure](data:image/png;base64,{''.join(png).strip()})"
