"""The catalogue of the site: a page for each method, and one that lists them."""

import re
from collections.abc import Mapping
from html import escape

from posenc_jax.encodings import CATALOG, card
from posenc_jax.encodings.card import Card
from posenc_jax.encodings.describe import facts, option_lines, summary
from posenc_jax.lab.gallery.page import FAMILIES, families
from scripts.site.mathematics import mathematics

HEAD = re.compile(r"\| method \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)")


def pages(board: str) -> dict[str, str]:
    """Returns path -> Markdown of all pages of methods.

    Args:
      board: docs/leaderboard.md, of which each page shows the rows of its method.
    """
    made = {f"methods/{name}.md": page(card(name), rows(board, name)) for name in CATALOG}
    return {"catalogue.md": index(), **made}


def index() -> str:
    """Returns the page that lists all methods by family."""
    told = (
        "The [explorer](explorer.html) overlays them; [one table](encodings.md) has their "
        "parameters and costs."
    )
    lines = [f"# {len(CATALOG)} methods", "", told, ""]
    for kind, names in families(CATALOG).items():
        lines += [f"## {FAMILIES[kind]}", "", "| method | formula | paper |", "|---|---|---|"]
        for name in names:
            formula = mathematics(card(name).formula).replace("|", "&#124;")
            lines.append(
                f"| [{name}](methods/{name}.md) | {formula} | {linked(card(name).paper)} |"
            )
        lines.append("")
    return "\n".join(lines)


def page(method: Card, standing: Mapping[str, str]) -> str:
    """Returns the page of a method; `standing` is title -> table of its rows on the board."""
    name, told = method.name, facts(method)
    lines = [
        f"# {name}", "", escape(summary(method), quote=False), "",
        f'<p class="formula">{mathematics(method.formula)}</p>', "",
        f"- paper: {linked(method.paper)}",
        *(f"- {heading}: {told[heading]}" for heading in ("acts on", "beyond", "invariant")),
        f"- checked against: the definition in float64{_packages(method)}",
        f"- [move its options in the explorer](../explorer.html#{name})",
        "- [parameters, operations and bytes](../encodings.md); "
        "[where public implementations differ](../differences.md)", "",
        f"![the card of {name}](../gallery/{name}.png)", "",
    ]  # fmt: skip
    if options := option_lines(method):
        lines += ["## Options", "", *(f"- `{line}`" for line in options), ""]
    lines += ["## On the board", ""]
    for title, table in standing.items():
        lines += [f"{title}, of [the board](../leaderboard.md):", "", table, ""]
    if not standing:
        lines += ["Not measured on [the board](../leaderboard.md).", ""]
    build = method.build
    return "\n".join([*lines, "## Reference", "", f"::: {build.__module__}.{build.__name__}", ""])


def _packages(method: Card) -> str:
    return f", {method.reference}" if method.reference else "; no public package has it"


def linked(paper: str) -> str:
    """Returns a citation whose arXiv ids are links."""
    text = escape(paper, quote=False)
    return re.sub(r"(?:arXiv )?\b(\d{4}\.\d{5})\b", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def rows(board: str, name: str) -> dict[str, str]:
    """Returns title -> table with the head and the rows of a method, of each table of the board.

    A row is of a method if it is named alone or chained, among equal ones too.
    """
    found = {}
    for section in re.split(r"^## ", board, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        table = HEAD.search(text.split("<details>")[0])
        if not table:
            continue
        own = [line for line in table[1].splitlines() if name in _names(line)]
        if own:
            head = table[0].splitlines()[:2]
            found[title] = "\n".join([*head, *own])
    return found


def _names(line: str) -> set[str]:
    """Returns the methods that a row of the board is about."""
    return set(re.findall(r"\w+", line.split("|")[1]))
