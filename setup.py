"""Makes the page of the package index of README.md; everything else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LAB = "\n## Experiments\n"  # here begins what the wheel does not have
CLOSING = """
## The lab

The repository has more than this package: experiments and their configs, what was measured, the
pages that are named here, and a site that is built from them.

Licence: Apache 2.0.
"""


def index_page(readme: str, repository: str = "") -> str:
    """Returns the page of the package index: of README.md the sections about the library, with
    links that hold outside of the repository.

    Args:
      readme: Markdown, whose links are relative to the repository.
      repository: its address, from which links become absolute. Without one a link is its text
        and the path in the repository, and a figure is left out with its caption.
    """
    page = readme.partition(LAB)[0].rstrip() + "\n" + CLOSING
    page = page.replace(
        "pip install .          # in this folder; needs", "pip install posenc_jax  # needs"
    )
    if not repository:
        page = re.sub(r"!\[[^\]]*\]\([^)]*\)\n\n\*[^*]+\*\n\n", "", page)
        return re.sub(r"\[([^\]]*)\]\((?!https?:)([^)]*)\)", _named, page)
    page = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{repository}/raw/HEAD/", page)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{repository}/blob/HEAD/", page)


def _named(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    setup(
        long_description=index_page(
            (ROOT / "README.md").read_text("utf-8"), project.get("urls", {}).get("Repository", "")
        ),
        long_description_content_type="text/markdown",
    )
