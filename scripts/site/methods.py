"""The catalogue of the site: a page for each method, and one that lists them."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType

from posenc_jax.encodings import CATALOG, card
from posenc_jax.encodings.card import Card, facts, option_lines, summary
from posenc_jax.lab.definitions.trials import REFERENCES
from posenc_jax.lab.gallery.page import FAMILIES, families
from scripts.site.mathematics import mathematics

HEAD = re.compile(r"\| method \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)")


def pages(docs: Path) -> dict[str, str]:
    """Returns path -> Markdown of all pages of methods; each has what docs/ says of it."""
    files = ("leaderboard", "encodings", "benchmarks", "differences")
    board, costs, speed, differing = ((docs / f"{n}.md").read_text("utf-8") for n in files)
    made = {"catalogue.md": index()}
    for name in CATALOG:
        made[f"methods/{name}.md"] = page(
            card(name), rows(board, name), cost(costs, name), speeds(speed, name),
            differences(differing, name),
        )  # fmt: skip
    return made


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


def page(
    method: Card,
    standing: Mapping[str, str],
    cost: str = "",
    speeds: Mapping[str, str] = MappingProxyType({}),
    differences: Sequence[str] = (),
) -> str:
    """Returns the page of a method.

    Args:
      standing: title -> table of its rows on the board.
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
        f"- [what it adds](../encodings.md): {cost or 'not counted'}", "",
        f"![the card of {name}](../gallery/{name}.png)", "",
    ]  # fmt: skip
    if options := option_lines(method):
        lines += ["## Options", "", *map(_option, options), ""]
    lines += ["## On the board", ""]
    for title, table in joined(standing).items():
        lines += [f"{title}, of [the board](../leaderboard.md):", "", table, ""]
    if not standing:
        lines += ["Not measured on [the board](../leaderboard.md).", ""]
    for title, table in speeds.items():
        lines += [f"## Speed: {title}", "", table, "", "[All benchmarks](../benchmarks.md).", ""]
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


def joined(standing: Mapping[str, str]) -> dict[str, str]:
    """Returns title -> table, where the tables of tasks, which have one head, are one table."""
    by_head: dict[tuple[str, str], dict[str, list[str]]] = {}
    for title, table in standing.items():
        head, rule, *lines = table.splitlines()
        by_head.setdefault((head, rule), {})[title] = lines
    found = {}
    for (head, rule), own in by_head.items():
        if len(own) == 1:
            found |= {title: standing[title] for title in own}
        else:
            lines = [f"| {title} {line}" for title, lines in own.items() for line in lines]
            found["Each task"] = "\n".join([f"| task {head}", f"|---{rule}", *lines])
    return found


def cost(catalogue: str, name: str) -> str:
    """Returns what a method adds, from its row of the table of all methods; "" without a row."""
    for table in re.findall(r"(?:^\|.*\n)+", catalogue, re.MULTILINE):
        head, _, *lines = ([cell.strip() for cell in line.strip("| ").split(" | ")]
                           for line in table.splitlines())  # fmt: skip
        for cells in lines:
            told = dict(zip(head, cells, strict=False))
            if told.get("method", "").startswith(f"[`{name}`]"):
                added, operations, size = (told[n] for n in ("parameters", "operations", "bytes"))
                return f"parameters: {added}; {operations} operations, {size}"
    return ""


def speeds(benchmarks: str, name: str) -> dict[str, str]:
    """Returns title -> table of the benchmarks that end with the method's name."""
    sections = re.split(r"^## ", benchmarks, flags=re.MULTILINE)[1:]
    found = dict(section.split("\n", 1) for section in sections)
    return {title.removesuffix(f", {name}"): text.strip() for title, text in found.items()
            if title.endswith(f", {name}")}  # fmt: skip


def differences(text: str, name: str) -> list[str]:
    """Returns a line for each public implementation that differs and is made by the method."""
    found, above = [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) != 4:
            continue
        who, what, here, by = cells
        who = above = above if who == "the same" else who
        if re.search(rf"`(?:[^`]*[^\w`])?{name}\(", here):
            found.append(f"- {who}: {what}. Here: {here} ({by})")
    return found


def _names(line: str) -> set[str]:
    """Returns the methods that a row of the board is about."""
    return set(re.findall(r"\w+", line.split("|")[1]))
