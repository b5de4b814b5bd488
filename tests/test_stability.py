"""The public names, and the page of the package index."""

import importlib
import re

import pytest

import posenc_jax
from setup import index_page
from tests.support import ROOT

PAGE = (ROOT / "docs" / "stability.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"\]\((?!https?:|#)")


def listed(page):
    """The names in the first column of the page's table."""
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_page_lists_the_public_names():
    assert sorted(listed(PAGE)) == sorted(posenc_jax.__all__)
    assert sorted(listed(PAGE.replace("`zigzag` ", ""))) != sorted(posenc_jax.__all__), "control"


def test_the_public_names_and_modules_are_there():
    for name in posenc_jax.__all__:
        assert getattr(posenc_jax, name) is not None
    stable = PAGE.partition("The modules ")[2].partition(" are stable")[0]
    modules = re.findall(r"`(posenc_jax\.\w+)`", stable)
    assert len(modules) == 6
    assert all(importlib.import_module(module).__doc__ for module in modules)


@pytest.mark.parametrize("repository", ["", "https://example.org/somebody/posenc_jax"])
def test_no_link_of_the_index_page_is_relative(repository):
    page = index_page(README, repository)
    assert LINK.search(README), "control"
    assert LINK.search(page) is None
    assert "## In your model" in page
    assert "pip install posenc_jax " in page
    assert "train.py" not in page, "the wheel has no lab of this folder"
    if repository:
        assert f"]({repository}/blob/HEAD/docs/choosing.md)" in page
        assert f"]({repository}/raw/HEAD/docs/rope_extrap.png)" in page
    else:
        assert "](" not in page.replace("](https:", "")
        assert "*RoPE trained" not in page, "a caption without its figure"
        assert "Which encoding should I use? (`docs/choosing.md`)" in page
