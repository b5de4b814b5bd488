"""What the answers of models that copy follow: their place, or the symbols before it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments.board.leaderboard.overwritten import LABEL
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.leaderboard.standings import Row, mean
from experiments.board.leaderboard.task_table import UNDEFINED, short, with_options
from posenc_jax.lab.report import Grid, Section
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.runs import StoredRun

COPIES = 0.9  # token accuracy within the trained window from which a model copies
MOST = 0.75  # of the answers; of bits, half of the answers follow either by chance
# problem -> method -> window -> what it follows -> the share of examples, the mean over seeds
Shares = Mapping[str, Mapping[str, Mapping[int, Mapping[str, float]]]]


def followed(runs: Iterable[StoredRun]) -> dict[str, Any]:
    """problem -> method -> window -> what answers follow -> seed -> the share that does."""
    values: dict[str, Any] = {}
    for run in runs:
        problem = run.config["task"]["name"]
        for record in run.records:
            labels = record["labels"]
            if LABEL in labels and "statistic" not in labels:
                by_window = values.setdefault(problem, {}).setdefault(
                    with_options(labels["encoding"], run), {}
                )
                by_what = by_window.setdefault(labels["length"], {})
                by_what.setdefault(labels[LABEL], {})[record["seed"]] = record["value"]
    return values


def shares(runs: Iterable[StoredRun]) -> Shares:
    """What the answers of each method follow where symbols were overwritten."""
    return {
        problem: {
            method: {
                window: {what: mean(by_seed) for what, by_seed in by_what.items()}
                for window, by_what in by_window.items()
            }
            for method, by_window in by_method.items()
        }
        for problem, by_method in followed(runs).items()
        if PROBLEMS[problem].overwrites
    }


def section(runs: Sequence[StoredRun], tasks: Mapping[str, Mapping[str, Row]]) -> Section | None:
    """What the answers of models that copy follow; None if none was measured.

    tasks: problem -> method -> its row, of these runs.
    """
    rows, lines, measured = [], [], shares(runs)
    windows = sorted(
        {n for by_method in measured.values() for by in by_method.values() for n in by}
    )
    for problem, by_method in measured.items():
        copies = [*_copying(by_method, tasks[problem])]
        if not copies:
            continue
        most = Counter(_most(by_method[method][windows[0]]) for method in copies)
        lines.append(
            f"{problem}: copied by {counted(len(copies), 'method')}. After "
            f"{PROBLEMS[problem].overwrites} overwritten symbols, {100 * MOST:.0f}% of the answers "
            f"or more follow the n-gram in {most['n-gram']} of them, the position in "
            f"{most['position']}, and in {most['neither']} so many follow neither."
        )
        for method in copies:
            cells = [_cells(by_method[method].get(window)) for window in windows]
            rows.append((problem, method, *(cell for row in cells for cell in row)))
    if not rows:
        return None
    kinds, multiples = ("position", "n-gram", "neither"), [n // windows[0] for n in windows]
    columns = [f"{kind}\n{multiple}×" for multiple in multiples for kind in kinds]
    caption = (
        "The share of examples whose answer, after overwritten symbols, is the symbol of its own "
        "place (position), or what follows these symbols in the string (n-gram), in the trained "
        "window and in one of twice its size: means over seeds. Methods with at least "
        f"{COPIES} of the tokens right in the trained window."
    )
    return Section(
        "What a copy follows",
        [*lines, Grid(["problem", "method", *columns], rows, caption)],
        folded=True,
    )


def _copying(by_method: Iterable[str], rows: Mapping[str, Row]) -> Iterator[str]:
    """The methods that copy within the trained window."""
    for method in by_method:
        row = rows[method]
        if mean(row.scores["token_accuracy"][row.windows[0]]) >= COPIES:
            yield method


def _most(followed: Mapping[str, float]) -> str:
    """What most of the answers follow; "neither" if there is no such thing."""
    return next((what for what, value in followed.items() if value >= MOST), "neither")


def _cells(followed: Mapping[str, float] | None) -> Sequence[str]:
    if followed is None:
        return (UNDEFINED,) * 3
    position, gram = followed["position"], followed["n-gram"]
    return tuple(short(value) for value in (position, gram, max(0.0, 1 - position - gram)))
