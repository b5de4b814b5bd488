"""The ledger as sections of report.html, and as Markdown."""

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.claims.entries import Entry
from posenc_jax.lab.report import Grid, Picture, Section, drawing

HEAD = """\
# Claims about positional encodings, measured

Each row is a claim as tutorials and papers make it. No verdict is written by hand: a rule, fixed
before the run, makes it from the numbers. A number is a mean ± half of its 95% t interval over
seeds, or a single value if nothing in it is random. "(control)" marks a number that must come out
the other way; if it does not, the test shows nothing."""
HEADS = ("number", "mean", "every seed")  # of the table of numbers


def sections(entries: Sequence[Entry]) -> list[Section]:
    """All verdicts with their reasons, then a folded section for each claim."""
    rows = [(e.claim.id, str(e.verdict), e.verdict.reason) for e in entries]
    caption = "Each verdict by a rule fixed before the run"
    return [
        Section("Verdicts", [Grid(("claim", "verdict", "because"), rows, caption, words=True)]),
        *(_section(e) for e in entries),
    ]


def _section(e: Entry) -> Section:
    parts: list = [f"Claim: {e.claim.text}.", *(f"{head}: {text}" for head, text in _said(e))]
    if (draw := e.figure) is not None:
        parts.append(Picture(e.claim.id, lambda: draw(e.measured), e.claim.text))
    parts.append(Grid(HEADS, _rows(e), f"measured in {e.seconds:.0f} s"))
    return Section(f"{e.claim.id}: {e.verdict}", parts, folded=True)


def _said(e: Entry) -> Iterator[tuple[str, str]]:
    """(head, text) of the verdict, of how the numbers are measured, and of the rule."""
    word = str(e.verdict)
    yield word[:1].upper() + word[1:], f"{e.verdict.reason}."
    for head, function in (("Measured", e.claim.measure), ("Rule", e.claim.rule)):
        yield head, re.sub(r"\s+", " ", inspect.getdoc(function) or "")


def publish(entries: Sequence[Entry], path: Path) -> None:
    """Writes the ledger as Markdown, and its figures into the folder of the same name."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for e in entries:
        if (draw := e.figure) is not None:
            with drawing.styled(e.claim.id):
                figure = draw(e.measured)
                figure.savefig(folder / f"{e.claim.id}.svg", metadata={"Date": None})
    path.write_text(markdown(entries, folder.name), "utf-8")


def markdown(entries: Sequence[Entry], figures: str) -> str:
    """The ledger as Markdown that links to the figures in the folder `figures`."""
    origins: dict[str, list[str]] = {}
    for e in entries:
        origins.setdefault(_origin(e), []).append(e.claim.id)
    head = [HEAD, ""]
    for text, ids in origins.items():
        of = "" if len(origins) == 1 else f"{', '.join(ids)}: "
        head += [of + text, ""]
    rows = [
        f"| [{e.claim.id}](#{e.claim.id}) | {_cell(e.claim.text)} | **{_cell(str(e.verdict))}** |"
        for e in entries
    ]
    lines = [line for e in entries for line in _lines(e, figures)]
    return "\n".join([*head, "| id | claim | verdict |", "|---|---|---|", *rows, "", *lines])


def _origin(e: Entry) -> str:
    """When and how an entry was measured; the same for all claims of one run."""
    run = e.run
    return (
        f"Measured {run['started'][:10]} at commit {run['commit'] or 'unknown'}, budget "
        f"{run['budget']}, {run['seeds']} seeds from {run.get('first_seed', 0)} on, Python "
        f"{run['python']}, JAX {run['jax']} on {run['device']}. Shared models: {run['model']}; "
        f"{run['training']}; {run['text']}."
    )


def _lines(e: Entry, figures: str) -> Iterator[str]:
    yield from (f"## {e.claim.id}", "", f"> {e.claim.text}", "")
    for mark, (head, text) in zip(("**", "*", "*"), _said(e), strict=True):
        yield from (f"{mark}{head}{mark}: {text}", "")
    if e.figure is not None:
        yield from (f"![{e.claim.id}]({figures}/{e.claim.id}.svg)", "")
    yield from ("<details><summary>Numbers</summary>", "")
    yield from (f"| {' | '.join(HEADS)} |", "|---|---|---|")
    yield from (f"| {_cell(name)} | {mean} | {seeds} |" for name, mean, seeds in _rows(e))
    yield from ("", "</details>", "")


def _rows(e: Entry) -> list[tuple[str, str, str]]:
    """(name, mean, the value of every seed) of each number; "" if there is one value only."""
    return [
        (name, str(number), " ".join(f"{v:.3g}" for v in values) if len(values) > 1 else "")
        for (name, number), values in zip(
            e.measured.intervals.items(), e.measured.numbers.values(), strict=True
        )
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
