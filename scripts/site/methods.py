"""The catalogue of the site: a page for each method, and one that lists them."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from posenc_jax.encodings import CATALOG, card
from posenc_jax.encodings.card import Card, facts, option_lines, summary
from posenc_jax.lab.definitions.trial_options import REFERENCES
from posenc_jax.lab.gallery import encodings_table
from posenc_jax.lab.gallery.costs import Cost
from posenc_jax.lab.gallery.page import FAMILIES, families
from posenc_jax.lab.report import Grid, Section, markdown
from scripts import bench
from scripts.site.mathematics import mathematics


def pages(
    counted: Mapping[str, Cost],
    board: Sequence[Section],
    benchmarks: Mapping[str, Any],
    differing: str,
) -> dict[str, str]:
    """Returns path -> Markdown of all pages of methods.

    Args:
      counted: the cost of every method, as `costs.counted` returns it.
      board: the sections of the board.
      benchmarks: the content of results/benchmarks.json.
      differing: the page on public implementations that differ, which is written by hand.
    """
    pages = {"catalogue.md": index()}
    for name in CATALOG:
        pages[f"methods/{name}.md"] = page(
            card(name), rows(board, name), cost(name, counted), speeds(benchmarks, name),
            differences(differing, name),
        )  # fmt: skip
    return pages


def index() -> str:
    """Returns the page that lists all methods by family."""
    told = (
        "The [explorer](explorer.html) overlays them; the [gallery](gallery/index.html) has all "
        "their cards, [one table](encodings.md) their parameters and costs."
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


def page(
    method: Card,
    standing: Mapping[str, Grid],
    cost: str = "not counted",
    speeds: Sequence[tuple[str, str]] = (),
    differences: Sequence[str] = (),
) -> str:
    """Returns the page of a method.

    Args:
      standing: title -> its rows of the board's tables.
      cost, speeds, differences: as the functions of these names return them.
    """
    name, told = method.name, facts(method)
    lines = [
        f"# {name}", "", sentence(summary(method)), "",
        f'<p class="formula">{mathematics(method.formula)}</p>', "",
        f"- paper: {linked(method.paper)}",
        *(f"- {heading}: {told[heading]}" for heading in ("acts on", "beyond", "invariant")),
        f"- checked against: the definition in float64{_packages(method)}",
        f"- [move its options in the explorer](../explorer.html#{name})",
        f"- [what it adds](../encodings.md): {cost}", "",
        f"![the card of {name}](../gallery/{name}.svg)", "",
    ]  # fmt: skip
    if options := option_lines(method):
        lines += ["## Options", "", *map(_option, options), ""]
    lines += ["## On the board", ""]
    for title, table in joined(standing).items():
        lines += [f"{title}, of [the board](../leaderboard.md):", "", *markdown.table(table), ""]
    if not standing:
        lines += ["Not measured on [the board](../leaderboard.md).", ""]
    for title, table in speeds:
        lines += [
            f"## Speed: {title}",
            "",
            table,
            "",
            "[All benchmarks](../results/benchmarks.md).",
            "",
        ]
    if differences:
        lines += ["## Where public implementations differ", "", *differences, "",
                  "[All of them](../differences.md).", ""]  # fmt: skip
    build = method.build
    return "\n".join([*lines, "## Reference", "", f"::: {build.__module__}.{build.__name__}", ""])


def sentence(text: str) -> str:
    """Returns a sentence with its formulas as mathematics; what is between backticks stays."""
    parts = enumerate(text.split("`"))
    return "`".join(part if i % 2 else mathematics(part) for i, part in parts)


def _option(line: str) -> str:
    option, colon, said = line.partition(": ")
    return f"- `{option}`{colon}{sentence(said)}"


def _packages(method: Card) -> str:
    packages = REFERENCES.get(method.name)
    return f", {packages}" if packages else "; no public package has it"


def linked(paper: str) -> str:
    """Returns a citation whose arXiv ids are links."""
    text = escape(paper, quote=False)
    return re.sub(r"(?:arXiv )?\b(\d{4}\.\d{5})\b", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def rows(board: Sequence[Section], name: str) -> dict[str, Grid]:
    """Returns title -> the rows of a method of each table of the board's sections.

    A row is of a method if it is named alone or chained, among equal ones too.
    """
    tables = {}
    for section in board:
        for part in section.parts:
            if isinstance(part, Grid) and part.columns[0] == "method":
                rows_of_method = [
                    row for row in part.rows if name in re.findall(r"\w+", str(row[0]))
                ]
                mine = part._replace(rows=rows_of_method)
                if rows_of_method:  # the first rows of the ranking are in a table of their own too
                    tables = {title: grid for title, grid in tables.items() if grid != mine}
                    tables.setdefault(section.title, mine)
    return tables


def joined(standing: Mapping[str, Grid]) -> dict[str, Grid]:
    """Returns title -> table; tables with the same columns are one, with a column for the task."""
    by_head: dict[tuple[str, ...], dict[str, Grid]] = {}
    for title, table in standing.items():
        by_head.setdefault(tuple(table.columns), {})[title] = table
    joined_tables = {}
    for head, alike in by_head.items():
        if len(alike) == 1:
            joined_tables |= alike
        else:
            lines = [(title, *row) for title, table in alike.items() for row in table.rows]
            joined_tables["Each task"] = Grid(("task", *head), lines, "")
    return joined_tables


def cost(name: str, counted: Mapping[str, Cost]) -> str:
    """Returns what a method adds, as its row of the table of all methods."""
    told = encodings_table.row(name) | encodings_table.cost(name, counted)
    return f"parameters: {told['parameters']}; {told['operations']} operations, {told['bytes']}"


def speeds(benchmarks: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """Returns title and table of the benchmarks that end with the method's name."""
    return [
        (
            title.removesuffix(f", {name}"),
            "\n".join(bench.table(results, benchmarks["steps"][title])),
        )
        for title, results in benchmarks["contests"].items()
        if title.endswith(f", {name}")
    ]


def differences(text: str, name: str) -> list[str]:
    """Returns a line for each public implementation that differs and is made by the method."""
    lines, above = [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) != 4:
            continue
        who, what, here, by = cells
        who = above = above if who == "the same" else who
        if re.search(rf"`(?:[^`]*[^\w`])?{name}\(", here):
            lines.append(f"- {who}: {what}. Here: {here} ({by})")
    return lines
