"""The report of a run, one task: its table, and every seed."""

import json
from collections.abc import Mapping, Sequence

from experiments.board.leaderboard.config import SAME, Config, told_length
from experiments.board.leaderboard.examples import content_floors, task_of, trained_sizes
from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.standings import (
    LEARNED,
    Comparison,
    Row,
    compared,
    joined,
    mean,
    read,
)
from experiments.board.leaderboard.standings import tests as further
from posenc_jax.lab.report import Grid, Section, formats
from posenc_jax.lab.report.statistics import Interval, share_interval
from posenc_jax.lab.report.summaries import lead
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.tasks.content_rules import LENGTHS, SHORT, ContentFloor
from posenc_jax.lab.tasks.task_floors import Floor, floor

UNDEFINED = "–"  # in a table, where there is no number
NOT_LEARNED = "not learned"
TOLD = "†"
METRICS = {"exact_match": "exact", "token_accuracy": "tokens"}
CAPTION = (
    "Means over seeds. rate: the learning rate chosen. steps: to learn the task, the median over "
    "seeds. exact, tokens: the share of examples whose answer is right as a whole, and of answer "
    "tokens that are right: 1× in trained sizes, then at the largest size of longer windows; "
    f"{NOT_LEARNED}: exact match below {LEARNED} at 1×. cost: exact match at 1×, reference minus "
    "method; gain: token accuracy beyond 1×, method minus reference; * differs from 0, corrected "
    "for all tests of the task; ? has another star after twice the steps, so it is not decided. "
    f"{TOLD} is told the length of the test. {UNDEFINED}: not defined."
)


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    rows, (tokens, exact) = read(run.records), floor_of(run)
    reference, task = run.config["reference"], run.config["task"]["name"]
    notes = [
        f"{name}: not measured, {why}." for name, why in run.summary.own["not_measured"].items()
    ]
    notes += left_out(run.summary.own["left_out"])
    notes.append(
        "Without positions, at the largest trained size: "
        f"{short(tokens[1])} of the answer tokens ({tokens[0]}), {short(exact[1])} of the answers."
    )
    return lead(run, task, f"{len(rows)} methods"), [
        Section(f"{task}, learned and beyond", [*notes, table(rows, reference)]),
        Section("Every seed", [every_seed(rows)], folded=True),
    ]


def config_of(run: StoredRun) -> Config:
    """The run's config; a field that is newer than the run has its default."""
    return Config.model_validate_json(json.dumps(run.config))


def floor_of(run: StoredRun, test: str = "") -> Floor:
    """The best scores without positions on the run's task, at the largest trained size.

    test: the name of a further test of a problem.
    """
    config = config_of(run)
    task = task_of(config, test)
    trained = trained_sizes(task, config.window, config.shortest)
    return floor(task, trained, trained[1])


def content_floors_of(run: StoredRun, test: str = "") -> dict[int, dict[str, ContentFloor]]:
    """window -> metric -> the best score of rules of content on the run's task; see `floor_of`."""
    return content_floors(config_of(run), test)


def content_rows(task: str, floors: Mapping[int, Mapping[str, ContentFloor]]) -> list[tuple]:
    """The rows of a task in a table of rules of content: of few tokens, and of more."""
    rows = []
    for tokens, length in ((SHORT, "short"), (LENGTHS[-1], "long")):
        best = [getattr(by_metric["token_accuracy"], length) for by_metric in floors.values()]
        exact = [getattr(by_metric["exact_match"], length) for by_metric in floors.values()]
        cells = (short(value) for _, value in (*exact, *best))
        rows.append((f"{task}, {tokens} tokens", best[-1][0], *cells))
    return rows


def content_columns(windows: Sequence[int]) -> list[str]:
    """The columns of a table of rules of content."""
    multiples = [f"{window // windows[0]}×" for window in windows]
    return ["task", "best rule", *(f"{m}\n{n}" for m in METRICS.values() for n in multiples)]


def left_out(reasons: Mapping[str, str]) -> list[str]:
    """A sentence for each reason why methods are left out."""
    return [
        f"Left out, {why}: {', '.join(n for n, other in reasons.items() if other == why)}."
        for why in dict.fromkeys(reasons.values())
    ]


def table(rows: Mapping[str, Row], reference: str) -> Grid:
    """The table of one task, the best first beyond the trained window."""
    versus = compared({n: row for n, row in rows.items() if SHUFFLED not in n}, reference)
    windows = sorted({window for row in rows.values() for window in row.windows})
    multiples = [f"{window // windows[0]}×" for window in windows]
    columns = ["method", "rate", "steps"]
    columns += [f"{short}\n{n}" for short in METRICS.values() for n in multiples]
    lines = [
        (label(name), f"{row.rate:g}", steps(row), *cells(row, windows),
         *(differences(versus, name) if name != reference else ("reference", "reference")))
        for name, row in in_order(rows)
    ]  # fmt: skip
    return Grid([*columns, "cost", "gain"], lines, CAPTION)


def in_order(rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    """The rows, best first by token accuracy beyond the trained window, then within it."""
    longer = max((row.windows for row in rows.values()), key=len)[1:]

    def key(item: tuple[str, Row]) -> tuple[float, float]:
        row = item[1]
        beyond = row.beyond(longer) if row.learned else None
        within = mean(row.scores["exact_match"][row.windows[0]])
        return -(mean(beyond) if beyond else -1.0), -within

    return sorted(rows.items(), key=key)


def label(name: str) -> str:
    """The name on the board, with those of methods that are the same by construction."""
    same = [other for other, row in SAME.items() if row == name]
    plain = name.partition(", ")[0]
    return " = ".join([name, *same]) + (TOLD if told_length(plain) else "")


def with_options(name: str, run: StoredRun) -> str:
    """The name of a row with the options of methods that its run states: "rope, base 14.2"."""
    method, control, _ = name.partition(SHUFFLED)
    return formats.with_options(method, config_of(run).encoding.options) + control


def by_task(runs: Sequence[StoredRun]) -> dict[str, dict[str, Row]]:
    """The rows of all runs of one setting; runs of one method and task join their seeds.

    Raises:
      ValueError: two runs have the same method, task and seed, or other rates.
    """
    tasks: dict[str, dict[str, Row]] = {}
    for run in runs:
        name = run.config["task"]["name"]
        for test in ("", *further(run.records)):
            rows = tasks.setdefault(f"{name}, {test}" if test else name, {})
            rows_of_run = read(run.records, test).items()
            for row, values in rows_of_run:
                method = with_options(row, run)
                try:
                    rows[method] = joined(rows[method], values) if method in rows else values
                except ValueError as error:
                    raise ValueError(
                        f"workdir: {run.path} has {method}, as another run of its task: {error}"
                    ) from None
    return tasks


def steps(row: Row) -> str:
    """The median over seeds of the steps to learn; a seed that never did counts as the slowest."""
    ascending = sorted(row.steps.values(), key=lambda value: (value != value, value))
    middle = ascending[len(ascending) // 2]
    return UNDEFINED if middle != middle else f"{middle:,.0f}"


def cells(row: Row, windows: list[int]) -> list[str]:
    """Each metric in each window; beyond the trained one only if the task was learned."""
    texts = []
    for metric in METRICS:
        for n, window in enumerate(windows):
            seeds = row.scores[metric].get(window)
            beyond = n > 0 and not row.learned
            texts.append(
                (NOT_LEARNED if n == 1 else "") if beyond
                else UNDEFINED if seeds is None
                else short(mean(seeds))
            )  # fmt: skip
    return texts


def differences(versus: Mapping[str, Comparison], name: str) -> tuple[str, str]:
    """The cells of cost and gain."""
    if name not in versus:
        return UNDEFINED, UNDEFINED
    comparison = versus[name]
    star = lambda what: "*" * (what in comparison.stars) + "?" * (what in comparison.undecided)
    return signed(comparison.cost) + star("cost"), signed(comparison.gain) + star("gain")


def signed(difference: Interval | None) -> str:
    return UNDEFINED if difference is None else f"{difference.mean:+.3f}".replace("0.", ".", 1)


def short(value: float) -> str:
    """A share with three digits and no zero before the point."""
    return f"{value:.3f}".removeprefix("0")


def every_seed(rows: Mapping[str, Row]) -> Grid:
    """Exact match and token accuracy of every seed in every window, and the interval over them."""
    lines = []
    for name, row in rows.items():
        for metric, name_of in METRICS.items():
            for window, seeds in row.scores[metric].items():
                values = list(seeds.values())
                ends = formats.share_ends(share_interval(values)) or UNDEFINED
                texts = " ".join(map(short, values))
                lines.append((label(name), name_of, str(window), texts, ends))
    columns = ["method", "metric", "window", "every seed", "interval"]
    return Grid(
        columns,
        lines,
        (f"Every seed, and the 95% Wilson interval over them; {UNDEFINED}: they agree."),
    )
