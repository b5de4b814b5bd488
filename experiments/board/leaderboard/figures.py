"""The figure of the board: every method at every length, as a heatmap and as dots."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.board.leaderboard.standings import Row, mean
from posenc_jax.lab.report import drawing, heatmap
from posenc_jax.lab.tasks.content_rules import LENGTHS, SHORT, ContentFloor

Tasks = Mapping[str, Mapping[str, Row]]  # task -> method -> row
DRAWN = (
    "Exact match, the mean over all tasks: left in each window, as a multiple of the trained one; "
    "right in trained sizes, in windows twice as long and in the longest. A task that was not "
    "learned counts as 0 beyond the trained sizes. Sorted by the mean beyond the trained sizes, "
    "then by that within. The dashed line is the best score without positions, the mean over "
    "tasks at the largest trained size. The last two rows are the best rules that look up so many "
    "tokens by content."
)


def draw(
    tasks: Tasks,
    names: Sequence[str],
    floors: Mapping[str, float],
    by_content: Mapping[str, Mapping[int, Mapping[str, ContentFloor]]],
) -> Figure:
    """Draws the methods, and the rules of content below them.

    floors: task -> the best exact match without positions.
    by_content: task -> window -> metric -> the best score of rules of content.
    """
    windows = windows_of(tasks)
    exact = {name: [mean_exact([rows[name] for rows in tasks.values()], n) for n in windows]
             for name in names}  # fmt: skip
    order = sorted(names, key=lambda name: beyond_then_within(exact[name]), reverse=True)
    title, rules = "Exact match in the trained sizes and beyond", []
    for tokens, length in ((SHORT, "short"), (LENGTHS[-1], "long")):
        row = f"content, {tokens} tokens"
        of_task = [[getattr(windowed[n]["exact_match"], length)[1] for n in windows]
                   for windowed in by_content.values()]  # fmt: skip
        exact[row] = list(np.mean(of_task, axis=0))
        rules.append(row)
    exact = {name: [np.nan if v is None else v for v in values] for name, values in exact.items()}
    groups = [{name: exact[name] for name in group} for group in (order, rules)]
    figure = Figure(figsize=(8, 1.6 + 0.19 * len(exact)))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.6))
    columns = [f"{n // windows[0]}×" for n in windows]
    heights = heatmap.draw(left, groups, columns, muted=rules, trained=1, size=7)
    left.set_xlabel("window / trained window")
    for number, (column, text) in enumerate(_shown(len(windows)).items()):
        for y, name in zip(heights, [*order, *rules], strict=True):
            if np.isfinite(exact[name][column]):
                drawing.seed_dots(right, y, [exact[name][column]], number, ms=6, label=text)
    floor = float(np.mean([floors[task] for task in tasks]))
    right.axvline(floor, color=drawing.MUTED, linewidth=1, linestyle="--", zorder=1,
                  label=f"without positions {floor:.2f}")  # fmt: skip
    right.set_xlim(-0.03, 1.03)
    right.set_xlabel("exact match")
    drawing.title_with_legend(figure, title, columns=4)
    return figure


def _shown(windows: int) -> dict[int, str]:
    return {0: "trained sizes", 1: "2×", windows - 1: "longest window"}


def beyond_then_within(values: Sequence[float | None]) -> tuple[float, float]:
    """What the methods are sorted by: the mean beyond the trained window, then that within."""
    within, *beyond = [-1.0 if value is None else value for value in values]
    return float(np.mean(beyond)) if beyond else 0.0, within


def windows_of(tasks: Tasks) -> list[int]:
    """The windows of the board, ascending."""
    every = [row.windows for rows in tasks.values() for row in rows.values()]
    return max(every, key=len)


def mean_exact(rows: Sequence[Row], window: int) -> float | None:
    """Exact match, the mean over tasks; 0 beyond the trained window where it was not learned."""
    scores = [row.scores["exact_match"] for row in rows]
    if any(window not in by_window for by_window in scores):
        return None
    counts = [row.learned or window == row.windows[0] for row in rows]
    return float(
        np.mean([mean(by_window[window]) * c for by_window, c in zip(scores, counts, strict=True)])
    )
