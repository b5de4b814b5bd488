"""What `mkdocs build` runs: adds the pages that are generated, and mends links that leave docs/.

They are made from the registry of methods and from the records in results/.
"""

import json
import posixpath
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # mkdocs loads this file by its path

from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]

import experiments
from posenc_jax.encodings import CATALOG
from posenc_jax.lab import runs
from posenc_jax.lab.gallery import encodings_table, explorer, store
from posenc_jax.lab.gallery import page as gallery
from posenc_jax.lab.gallery.page import FAMILIES, families
from posenc_jax.lab.report import vector
from scripts import architectures_page
from scripts.site import methods, notebooks, records, reference

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
OTHERS = ("claims",)  # records that are not runs of an experiment
TIMED = ("benchmarks", "gpu")  # pages of times
PARTS = {"pretrained": "pretrained_results"}  # a page written by hand -> the records of its part
EXPERIMENTS = sorted({path.name.partition(".")[0] for path in RESULTS.glob("*.tar.xz")}
                     - {*OTHERS, "catalogue"})  # fmt: skip
WHOLE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md",
         "CHANGELOG.md": "changelog.md"}  # fmt: skip
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")
# The pages of docs/ by the order of the site, which is that of the README.
TYPES = "architecture_types.md"  # a section for each type of architectures.md
USE = ("in_your_model.md", "caches.md", "architectures.md", TYPES, "pretrained.md")
CHOOSE = "choosing.md"
RUNNING = ("your_experiment.md", "running.md", "data.md", "tokens.md", "going_on.md", "sweeps.md")
MEASURED = ("leaderboard.md", "claims.md", "speed.md")  # first; any other page of docs/ follows
EXTEND = ("new_encoding.md", "design.md")
DEVICES = ("devices.md", "reliability.md")
ELSEWHERE = ("encodings.md", "differences.md", "stability.md")


def on_config(config: Any) -> Any:
    """Makes the navigation, of which the catalogue is a part."""
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    listed = {*USE, CHOOSE, *RUNNING, *MEASURED, *EXTEND, *DEVICES, *ELSEWHERE}
    rest = [page for page in pages if page not in listed]
    readme = (ROOT / "README.md").read_text("utf-8")
    examples = sorted(notebooks.pages(ROOT / "examples"), key=lambda at: readme.find(at[:-3]))
    tables = [f"results/{name}.md" for name in sorted([*EXPERIMENTS, *OTHERS, *TIMED])]
    config.nav = [
        {"Start": "index.md"},
        {"Use it": [*USE, {"Notebooks": examples}]},
        {
            "Choose": [
                CHOOSE,
                {"Explorer": "explorer.html"},
                {"Catalogue": ["catalogue.md", *_catalogue(), "encodings.md", "differences.md"]},
            ]
        },
        {"Experiments": [*RUNNING]},
        {"Results": [*MEASURED, *rest, {"Every table": tables}]},
        {"Extend it": [*EXTEND, "contributing.md"]},
        {"Many devices": [*DEVICES]},
        {"Reference": ["reference.md", "stability.md", "changelog.md"]},
    ]
    return config


def _catalogue() -> list[dict[str, list[dict[str, str]]]]:
    by_family = families(CATALOG).items()
    return [{FAMILIES[kind]: [{n: f"methods/{n}.md"} for n in names]} for kind, names in by_family]


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are generated, and the files outside of docs/ that pages link to."""
    stored = {name: runs.read_archive(RESULTS / f"{name}.tar.xz") for name in EXPERIMENTS}
    documents = {
        name: experiments.document(stored_runs)[1:] for name, stored_runs in stored.items()
    }
    measured = store.catalogue(RESULTS / "catalogue.tar.xz", ROOT / "build" / "catalogue")
    benchmarks = json.loads((RESULTS / "benchmarks.json").read_text("utf-8"))
    differing = (ROOT / "docs" / "differences.md").read_text("utf-8")
    counted = {name: method.cost for name, method in measured.items()}
    pages = {
        **of_methods(measured),
        **methods.pages(counted, documents["leaderboard"][1], benchmarks, differing),
        **notebooks.pages(ROOT / "examples"),
        "encodings.md": encodings_table.markdown(
            counted, (method.made for method in measured.values())
        ),
        "reference.md": reference.page(),
        TYPES: architectures_page.every_type(),
        **{at: mended((ROOT / path).read_text("utf-8"), path) for path, at in WHOLE.items()},
    }
    for name, stored_runs in stored.items():
        pages |= records.pages(name, stored_runs, *documents[name])
    pages |= records.other_pages(RESULTS)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    targets = set()
    for path in (*WHOLE, *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))):
        targets |= outside((ROOT / path).read_text("utf-8"), path)
    for target in sorted(targets):
        files.append(File.generated(config, f"source/{target}", abs_src_path=str(ROOT / target)))
    return files


def of_methods(measured: Mapping[str, store.Measured]) -> dict[str, str]:
    """Returns path -> text of the gallery, of each card, and of the explorer.

    The gallery and the explorer are pages of their own, without the site's navigation: a link leads
    back.
    """
    back = lambda page, start: page.replace(
        "<header>", f'<header><p><a href="{start}">posenc_jax</a></p>\n', 1
    )
    drawn = {name: gallery.figure(name, method.card) for name, method in measured.items()}
    maps = {name: (method.maps, method.shape) for name, method in measured.items() if method.maps}
    points = {name: method.points for name, method in measured.items() if method.points}
    return {
        "gallery/index.html": back(gallery.html(drawn), "../index.html"),
        **{
            f"gallery/{name}.svg": vector.standalone(method.card)
            for name, method in measured.items()
        },
        "explorer.html": back(explorer.html(points, maps), "index.html"),
    }


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Mends the links of the pages that docs/ holds, and lets what is folded be Markdown; adds a
    link to the page with everything that was measured, or with every type.
    """
    if page.file.src_uri == CHOOSE:
        page.meta["hide"] = ["toc", "navigation"]  # its table takes the whole width
    if not page.file.generated_by:
        markdown = mended(markdown, f"docs/{page.file.src_uri}")
        name = PARTS.get(page.file.name, page.file.name)
        if name in (*EXPERIMENTS, *OTHERS):
            markdown += f"\n\n[Every table, seed and setting](results/{name}.md)\n"
        if name == "architectures":
            markdown = markdown.replace("\n\n", f"\n\n[A section for each type]({TYPES})\n\n", 1)
    return markdown.replace("<details>", "<details markdown>")


def outside(text: str, path: str) -> set[str]:
    """Returns the files outside of docs/ that a page links to and that are no pages themselves."""
    targets = {posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
               for link in LINK.finditer(text)}  # fmt: skip
    return {t for t in targets if not t.startswith("docs/") and not t.endswith(".ipynb")
            and t not in WHOLE and (ROOT / t).is_file()}  # fmt: skip


def mended(text: str, path: str) -> str:
    """Returns a page with the links of the repository replaced by those of the site.

    Args:
      text: Markdown.
      path: of the page in the repository, from its root.
    """
    page_path = at(path)

    def replaced(link: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        if not (ROOT / target).exists():
            return link[0]  # the strict build names it
        return posixpath.relpath(at(target), posixpath.dirname(page_path) or ".") + (link[2] or "")

    return LINK.sub(replaced, text)


def at(path: str) -> str:
    """Returns the path in the site's sources of a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return WHOLE.get(path, f"source/{path}")
