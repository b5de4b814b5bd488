"""The ledger as sections of report.html, and as Markdown."""

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from experiments.claims.decisions import AGAIN, BUDGETS, NONE, RATE, SMALLEST, Finding, findings
from experiments.claims.entries import Entry, load
from experiments.claims.ledger import Draw
from experiments.claims.register import LEDGER
from experiments.limits import TITLE as LIMITS
from posenc_jax.lab.report import Grid, Picture, Section, vector
from posenc_jax.lab.report.document import linked
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.runs import StoredRun

HEAD = """\
# Claims about positional encodings, measured

Each row is a claim as tutorials and papers make it. No verdict is written by hand: a rule makes it
from the numbers, and the hash of its text and bounds was recorded before the claim was measured. A
number is a mean ± half of its 95% t interval over seeds, or a single value if nothing in it is
random. Other seeds draw other weights and other batches: a verdict that differs with them is not
decided. On the site, "(control)" marks a number that must come out the other way; if it does not,
the test shows nothing. A verdict is "moving" if a number that its rule reads differs between the
last two budgets by more than half of its interval: then its size at more steps is not known. q, on
the site too, is the p-value of a verdict after the correction of Benjamini and Hochberg for all
claims with random numbers; a verdict with q over 5% is not decided."""
TITLE = 58  # letters in a line of a figure's title
COLUMNS = ("id", "claim", "verdict", "at 1x, 2x, 4x", AGAIN, "q", "because")
MOVING = "moving"
MOST = 3  # numbers that move, with their values
CHANGED = "rule changed after the measurement"


def banner(ledger: Sequence[Finding]) -> str:
    """Says at which scale and budgets the claims were measured, and what that can decide."""
    entries = [e for f in ledger for e in f.entries]
    if any(e.run["scale"] != "full" for e in entries):
        return (
            "Scale quick: small models that are trained for a few steps, at one budget. No claim "
            "on trained models is decided here."
        )
    budgets = sorted({e.budget for e in entries if e.trains})
    if not budgets:
        return "Scale full: nothing was trained for these claims."
    again = [f for f in ledger if f.again]
    changed = [f.claim.id for f in again if f.verdict.when == AGAIN]
    moving = sum(bool(f.moving) for f in ledger)
    were = "was" if len(again) == 1 else "were"
    told = f" {counted(len(again), 'claim')} {were} measured again with other seeds: "
    told += f"{', '.join(changed)} changed." if changed else "no decided verdict changed."
    return (
        f"Scale full, budgets {', '.join(f'{budget}x' for budget in budgets)}: what the steps of "
        "every training were multiplied by. A claim on trained models is decided only if its "
        f"verdicts at 1x, 2x and 4x are the same. In {counted(moving, 'claim')} a number still "
        f"moves between the last two budgets.{told * bool(again)}"
    )


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections; writes claims.md as well."""
    ledger = findings(load(run.path))
    text = markdown(ledger, "figures", "[claims.json](claims.json)")
    (run.path / "claims.md").write_text(text, "utf-8")
    return banner(ledger), of_claims(ledger)


def of_claims(ledger: Sequence[Finding]) -> list[Section]:
    """All verdicts with their reasons, then a folded section for each claim."""
    caption = "Each verdict by a rule whose hash was recorded before the measurement"
    return [
        Section("Verdicts", [banner(ledger), Grid(*_table(ledger), caption, words=True)]),
        *(_section(f) for f in ledger),
    ]


def _table(ledger: Sequence[Finding]) -> tuple[Sequence[str], list[list[str]]]:
    """Heads and rows, a claim each; without other seeds if none were measured."""
    columns = [n for n, head in enumerate(COLUMNS) if head != AGAIN or any(f.again for f in ledger)]
    whole = ([f.claim.id, f.claim.text, *_verdicts(f), f.verdict.reason] for f in ledger)
    return [COLUMNS[n] for n in columns], [[row[n] for n in columns] for row in whole]


def _verdicts(f: Finding) -> list[str]:
    """The verdict, the word at each budget and with each group of other seeds, and q."""
    at = {e.budget: e.verdict.word for e in f.entries}
    words = ", ".join(at.get(budget, "not measured") for budget in BUDGETS)
    words = words if f.last.trains else "nothing is trained"
    other = ", ".join(e.verdict.word + f" at {e.budget}x" * (e.budget > 1) for e in f.again)
    other = other or ("nothing is random" if f.p is None else "not measured")
    return [noted(f), words, other, _shown(f.q)]


def noted(f: Finding) -> str:
    """The verdict, and in brackets whether its numbers move or its rule has changed."""
    notes = [MOVING] * bool(f.moving) + [CHANGED] * f.changed
    return f"{f.verdict} ({', '.join(notes)})" if notes else str(f.verdict)


def _shown(p: float | None) -> str:
    if p is None:
        return ""
    return f"{p:.2g}" if p > 2 * SMALLEST else "< 1e-8"


def _section(f: Finding) -> Section:
    parts: list = [f"Claim: {f.claim.text}.", *(f"{head}: {text}" for head, text in _said(f))]
    if (draw := f.last.figure) is not None:
        drawn = "Drawn from the measurement" + f" at {f.last.budget}x" * f.last.trains
        parts.append(Picture(f.claim.id, lambda: _titled(f, draw), f"{drawn}."))
    seconds = sum(e.seconds for e in (*f.entries, *f.again))
    parts.append(Grid(_heads(f), _rows(f), f"measured in {seconds:.0f} s"))
    return Section(f"{f.claim.id}: {f.verdict}", parts, folded=True)


def _titled(f: Finding, draw: Draw) -> Figure:
    """The figure, above it the claim and its verdict."""
    figure = draw(f.last.measured)
    text = textwrap.fill(f"{f.claim.id}: {f.claim.text}: {f.verdict}", TITLE)
    figure.set_figheight(figure.get_figheight() + 0.22 * (text.count("\n") + 1))
    figure.suptitle(text, x=0.01, ha="left", fontweight="bold", parse_math=False)
    return figure


def _said(f: Finding) -> Iterator[tuple[str, str]]:
    """(head, text) of the verdict, of how the numbers are measured, and of the rule."""
    word = str(f.verdict)
    yield word[:1].upper() + word[1:], f"{f.verdict.reason}."
    for head, function in (("Measured", f.claim.measure), ("Rule", f.claim.rule)):
        yield head, re.sub(r"\s+", " ", inspect.getdoc(function) or "")
    if f.changed:
        yield "Note", f"{CHANGED}: another hash was recorded before it."
    if f.last.trains and f.last.measured.numbers:
        yield (
            "Budgets",
            "; ".join(f"{e.budget}x: {e.verdict}: {e.verdict.reason}" for e in f.entries),
        )
    if f.moving:
        yield "Moving", f"{_moved(f, len(f.moving))}."
    if f.again:
        told = (f"{_seeds(e)}, {e.budget}x: {e.verdict}: {e.verdict.reason}" for e in f.again)
        yield "Other seeds", "; ".join(told)
    if f.p is not None and f.q is not None:
        yield "Significance", f"p {_shown(f.p)}, q {_shown(f.q)}; it must be at most {RATE}."


def _moved(f: Finding, most: int) -> str:
    """The numbers that differ between the last two budgets, so many of them with their values."""
    before, last = (entry.budget for entry in f.entries[-2:])
    shown = [f"{name} {a} and {b}" for name, (a, b) in [*f.moving.items()][:most]]
    rest = len(f.moving) - len(shown)
    return f"at {before}x and {last}x: {'; '.join(shown)}" + f"; {rest} more" * bool(rest)


def publish(ledger: Sequence[Finding], path: Path, archive: Path) -> None:
    """Writes the page in docs/, and its figures into the folder of the same name.

    archive: the file that holds what was measured.
    """
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for f in ledger:
        if (draw := f.last.figure) is not None:
            svg = vector.file(f.claim.id, partial(_titled, f, draw))
            (folder / f"{f.claim.id}.svg").write_text(svg, "utf-8")
    path.write_text(page(ledger, folder.name, archive), "utf-8")


def page(ledger: Sequence[Finding], figures: str, archive: Path) -> str:
    """The page in docs/: a table of the verdicts, then the reason and the figure of each.

    Args:
      figures: the folder of the figures, relative to the page.
      archive: the file of what was measured.
    """
    title, text = HEAD.split("\n\n", 1)
    lines = [title, "", f"**{banner(ledger)}**", "", _row("id", "claim", "verdict"),
             _row(*["---"] * 3)]  # fmt: skip
    lines += [_row(_link(f.claim.id), _cell(f.claim.text), noted(f)) for f in ledger]
    lines.append("")
    for f in ledger:
        lines += [f"## {f.claim.id}", "", f"> {f.claim.text}", ""]
        lines += [f"**{noted(f)}**: {f.verdict.reason}.", ""]
        lines += [f"Moving, {_moved(f, MOST)}.", ""] if f.moving else []
        lines += _figure(f, figures)
    days = sorted({e.run["started"][:10] for f in ledger for e in (*f.entries, *f.again)})
    lines += [f"## {LIMITS}", "", *(f"- {line}" for line in _limits(ledger)), ""]
    lines += [
        "## How it was measured", "", text, "",
        f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))}. {linked(archive)} has every "
        f"number of every seed; `python scripts/claims.py results/{archive.name}` makes this page "
        "from them. `make site` builds build/site/results/claims.html: how each claim was "
        "measured, its rule, its numbers at each budget and of other seeds, and when and where.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _limits(ledger: Sequence[Finding]) -> Iterator[str]:
    """What the measurements cannot show, from the settings of the runs and the verdicts."""
    runs = [e.run for f in ledger for e in (*f.entries, *f.again)]
    every = lambda field: "; ".join(dict.fromkeys(str(run[field]) for run in runs))
    yield f"Other models than the shared ones, of {every('model')}, where a claim trains no other."
    most = max((e.budget for f in ledger for e in f.entries if e.trains), default=1)
    yield f"More training than {most} times {every('training')} ({every('text')})."
    if missing := [id for id in LEDGER if id not in {f.claim.id for f in ledger}]:
        texts = "; ".join(f"{id}, {LEDGER[id].text}" for id in missing)
        yield f"Claims of the ledger that are not measured yet: {texts}."
    yield f"Differences that are too small for {every('seeds')} seeds."
    if undecided := [_link(f.claim.id) for f in ledger if f.verdict.word in NONE]:
        yield f"Whether these claims hold, which are not decided: {', '.join(undecided)}."


def _figure(f: Finding, figures: str) -> list[str]:
    if f.last.figure is None:
        return []
    return [f"![{f.claim.id}]({figures}/{f.claim.id}.svg)", ""]


def markdown(ledger: Sequence[Finding], figures: str, records: str) -> str:
    """All of the ledger as Markdown that links to the figures in the folder `figures`.

    records: a link to the file of what was measured, in Markdown.
    """
    title, text = HEAD.split("\n\n", 1)
    head = [title, "", f"**{banner(ledger)}**", "", text, ""]
    head += [f"[Runs](#runs) tells when and how each was measured; {records}"]
    head += ["has every number of every seed.", ""]
    heads, rows = _table(ledger)
    table = [_row(_link(id), *map(_cell, row)) for id, *row in rows]
    lines = [line for f in ledger for line in _lines(f, figures)]
    head += [_row(*heads), _row(*["---"] * len(heads)), *table, ""]
    return "\n".join([*head, *lines, *_runs(ledger), ""])


def _link(id: str) -> str:
    return f"[{id}](#{id})"


def _runs(ledger: Sequence[Finding]) -> Iterator[str]:
    """The shared models, and a table of the runs, each with what was measured in it."""
    models: dict[str, None] = {}
    runs: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for f in ledger:
        for e in (*f.entries, *f.again):
            run = e.run
            setting = f"{run['model']}; {run['training']}; {run['text']} (scale {run['scale']})"
            models[setting] = None
            software = f"Python {run['python']}, JAX {run['jax']} on {run['device']}"
            origin = run["started"][:10], run["commit"] or "unknown", _seeds(e), software
            at = runs.setdefault(origin, {}).setdefault(f.claim.id, [])
            at += [f"{e.budget}x"] * e.trains
    heads = "date", "commit", "seeds", "with", "claims"
    yield from ("## Runs", "", f"Shared models at 1x: {', and '.join(models)}.", "")
    yield from (_row(*heads), _row(*["---"] * len(heads)))
    for origin, budgets in sorted(runs.items()):
        alike: dict[str, list[str]] = {}
        for id, at in budgets.items():
            alike.setdefault(f" at {', '.join(at)}" * bool(at), []).append(id)
        yield _row(*origin, "; ".join(", ".join(ids) + at for at, ids in alike.items()))


def _seeds(e: Entry) -> str:
    return f"{counted(e.run['seeds'], 'seed')} from {e.run['first_seed']} on"


def _lines(f: Finding, figures: str) -> Iterator[str]:
    (verdict, reason), *rest = _said(f)
    yield from (f"## {f.claim.id}", "", f"> {f.claim.text}", "", f"**{verdict}**: {reason}", "")
    yield from _figure(f, figures)
    yield from (f"*{head}*: {text}\n" for head, text in rest)
    heads = _heads(f)
    yield from (
        "<details><summary>Numbers</summary>",
        "",
        _row(*heads),
        _row(*["---"] * len(heads)),
    )
    yield from (_row(*map(_cell, row)) for row in _rows(f))
    yield from ("", "</details>", "")


def _heads(f: Finding) -> tuple[str, ...]:
    """The heads of the table of numbers."""
    if not f.last.trains:
        return "number", "mean", "every seed"
    return "number", *(head for e in f.entries for head in (f"{e.budget}x", "every seed"))


def _rows(f: Finding) -> list[list[str]]:
    """Each number by its name: at each budget its mean, and the value of every seed unless there is
    only one value.
    """
    rows = {name: [name] for e in f.entries for name in e.measured.numbers}
    for e in f.entries:
        shown = e.measured.intervals
        for name, row in rows.items():
            values = e.measured.numbers.get(name, ())
            mean = str(shown[name]) if name in shown else "not measured"
            row += [mean, " ".join(f"{v:.3g}" for v in values) if len(values) > 1 else ""]
    return [*rows.values()]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
