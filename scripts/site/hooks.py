"""What `mkdocs build` runs: adds the generated pages, and mends links that leave docs/."""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # mkdocs loads this file by its path

from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]

from posenc_jax.encodings import CATALOG
from posenc_jax.lab.gallery.page import FAMILIES, families
from scripts.site import choosing, methods, notebooks, reference

ROOT = Path(__file__).parents[2]
WHOLE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md",
         "CHANGELOG.md": "changelog.md"}  # fmt: skip
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")
MEASURED = ("leaderboard.md", "claims.md")  # first; any other page of docs/ follows
RUNNING = ("sweeps.md", "accelerators.md", "gpu.md", "devices.md", "data.md", "pretrained.md")
ELSEWHERE = ("encodings.md", "differences.md", "design.md")


def on_config(config: Any) -> Any:
    """Makes the navigation, of which the catalogue is a part."""
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    rest = [page for page in pages if page not in (*MEASURED, *RUNNING, *ELSEWHERE)]
    readme = (ROOT / "README.md").read_text("utf-8")
    examples = sorted(notebooks.pages(ROOT / "examples"), key=lambda at: readme.find(at[:-3]))
    config.nav = [
        {"Start": "index.md"},
        {"Which encoding?": "choosing.md"},
        {"Explorer": "explorer.html"},
        {"Catalogue": ["catalogue.md", *_catalogue(), "encodings.md", "differences.md"]},
        {"Notebooks": examples},
        {"Measured": [*MEASURED, *rest]},
        {"Running": [*RUNNING]},
        {"Adding": ["contributing.md", "design.md"]},
        {"Reference": ["reference.md", "changelog.md"]},
    ]
    return config


def _catalogue() -> list[dict[str, list[dict[str, str]]]]:
    found = families(CATALOG).items()
    return [{FAMILIES[kind]: [{n: f"methods/{n}.md"} for n in own]} for kind, own in found]


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are generated, and the files outside of docs/ that pages link to."""
    pages = {
        **methods.pages(ROOT / "docs"),
        **notebooks.pages(ROOT / "examples"),
        "choosing.md": choosing.page(ROOT / "results"),
        "reference.md": reference.page(),
        **{at: mended((ROOT / path).read_text("utf-8"), path) for path, at in WHOLE.items()},
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    targets = set()
    for path in (*WHOLE, *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))):
        targets |= outside((ROOT / path).read_text("utf-8"), path)
    for target in sorted(targets):
        files.append(File.generated(config, f"source/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Mends the links of the pages that docs/ holds, and lets what is folded be Markdown."""
    if not page.file.generated_by:
        markdown = mended(markdown, f"docs/{page.file.src_uri}")
    return markdown.replace("<details>", "<details markdown>")


def outside(text: str, path: str) -> set[str]:
    """Returns the files of the repository outside of docs/ that a page links to, but no page."""
    targets = {posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
               for found in LINK.finditer(text)}  # fmt: skip
    return {t for t in targets if not t.startswith("docs/") and not t.endswith(".ipynb")
            and t not in WHOLE and (ROOT / t).is_file()}  # fmt: skip


def mended(text: str, path: str) -> str:
    """Returns a page with the links of the repository replaced by those of the site.

    Args:
      text: Markdown.
      path: of the page in the repository, from its root.
    """
    own = at(path)

    def replaced(found: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
        if not (ROOT / target).exists():
            return found[0]  # the strict build names it
        return posixpath.relpath(at(target), posixpath.dirname(own) or ".") + (found[2] or "")

    return LINK.sub(replaced, text)


def at(path: str) -> str:
    """Returns where a file of the repository is in the site's sources."""
    if path == "docs/gallery/README.md":
        return "gallery/index.html"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return WHOLE.get(path, f"source/{path}")
