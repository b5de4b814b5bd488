"""Writes docs/choosing.md, "Which encoding should I use?", from the records in results/.

    python scripts/choosing.py

A row is a use case. What it starts with, and what others published, is written here. Every number
is read from the records, and how sure an answer is follows from them. A row without evidence says
so.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax

import posenc_jax
from experiments.board.leaderboard.page import document as board_document
from experiments.claims.decisions import Finding, findings
from experiments.claims.entries import load
from experiments.claims.page import noted
from experiments.compare.length_extrapolation.page import of_tasks
from experiments.compare.page import in_order, ranked
from experiments.invariance.both_pages import is_released
from experiments.invariance.padding_leakage import page as padding
from experiments.pretrained import page as pretrained
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.report import summaries
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import LengthSummary

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NONE = "no evidence"
DIMS = posenc_jax.Dims(model=768, heads=12, head=64, layers=12)  # whose parameters are counted
GPU = "posenc_jax, nope"  # attention without positions, in results/gpu.json
TOKENS = 4096  # of the times on a GPU
NAMED = 3  # methods that are not told apart from the best; of more the number is given
# Claims of the ledger that a choice depends on.
CLAIMS = ("rope-2", "alibi-1", "xpos-1", "abs-1", "abs-3", "rel-2", "order-3", "img-1", "local-1")


class Evidence(NamedTuple):
    """A sentence with numbers, and how sure it is."""

    text: str
    sure: str


class UseCase(NamedTuple):
    """A row of the page.

    start:     what to start with, in Markdown.
    ours:      the evidence of this repository; None: there is none.
    page:      the page in docs/ that it is from.
    published: evidence of others, with its source.
    costs:     methods whose cost is shown.
    """

    case: str
    start: str
    ours: Callable[[], Evidence] | None
    page: str
    published: str
    costs: Sequence[str]


def by_length(archive: str, task: str, length: int, ending: str = "") -> Evidence:
    """The best method of a comparison at a length, and those not told apart from it.

    task: words of the task's name, with spaces between. ending: rows that end so, without it.
    """
    stored = runs.read_archive(RESULTS / f"{archive}.tar.xz")
    if archive == "length_extrapolation":
        base = of_tasks([run for run in stored if _is_on(run, task)])[task].base
        summary = base.summaries[base.metric]
    else:
        summary = in_order(summaries.only([run for run in stored if _is_on(run, task)]).by_length)
    rows = {
        name.removesuffix(ending): row
        for name, row in summary.results.items()
        if name.endswith(ending)
    }
    summary = replace(summary, results=rows)
    said = ranked(summary, length, named=NAMED)
    return Evidence(f"`{task}`, {_at(summary, length)}: {said}", _sure(summary, length))


def _is_on(run: StoredRun, task: str) -> bool:
    values = [value for value in run.config["task"].values() if isinstance(value, str)]
    return " ".join(values) == task


def _at(summary: LengthSummary, length: int) -> str:
    times = length / summary.train_length
    return "within the trained length" if times == 1 else f"at {times:g} times the trained length"


def _sure(summary: LengthSummary, length: int) -> str:
    seeds, others = summaries.seed_count(summary), summaries.leaders(summary, length)[1:]
    shown = "the first is shown to be better" if not others else "the first are not told apart"
    return f"small models, {seeds} seeds: {shown}"


def extended() -> Evidence:
    """How far the extensions of a trained model read, before and after fine-tuning."""
    run = summaries.only(runs.read_archive(RESULTS / "pretrained_results.tar.xz"))
    _, after, every, *_ = pretrained.findings(run.summary.own)
    trained, seeds = run.summary.own["train_length"], run.config["seeds"]
    text = (
        f"trained on {trained} tokens. {after} {every.rstrip('.')}, without a step of training. In "
        f"brackets: bits per byte more than at {trained}"
    )
    return Evidence(text, f"one small model, {counted(seeds, 'seed')} of fine-tuning")


def padded() -> Evidence:
    """What all masks leave of the effects of padding."""
    stored = runs.read_archive(RESULTS / "padding_leakage.tar.xz")
    run = summaries.only([run for run in stored if not is_released(run)])
    clean, *_ = padding.conclusions(run.summary.own)
    return Evidence(clean.partition("; ")[0], "exact: by construction, tested for each method")


def by_content() -> Evidence:
    """What the board's tasks measure."""
    (_, content, *_), _ = board_document(runs.read_archive(RESULTS / "leaderboard.tar.xz"))
    return Evidence(content.partition(". So")[0], NONE)


USE_CASES = (
    UseCase(
        "a decoder language model, used at the length it is trained at", "`rope`",
        lambda: by_length("length_extrapolation", "stdlib", 64), "length_extrapolation.md",
        "most released decoders rotate: [822 types](architectures.md)", ("rope",),
    ),
    UseCase(
        "a longer context for a trained RoPE model: trained at 8k, wanted at 32k",
        "`yarn` and fine-tuning, [step by step](pretrained.md#from-8k-to-32k); without any "
        "training, `rerope`, which no config.json has",
        extended, "pretrained.md#what-the-small-model-shows",
        "YaRN: Llama 2 to 128k in 600 steps, arXiv 2309.00071", ("yarn", "rerope"),
    ),
    UseCase(
        "must read longer texts than it is trained on, without training", "`kerple_log`",
        lambda: by_length("length_extrapolation", "stdlib", 1024), "length_extrapolation.md",
        "KERPLE: to 32 times the trained length, arXiv 2205.09921", ("kerple_log", "alibi"),
    ),
    UseCase(
        "must find one place far back", "`kerple_log`; rope among layers without positions",
        lambda: by_length("length_extrapolation", "passkey", 256), "length_extrapolation.md",
        "layers without positions between layers with rope: arXiv 2501.18795", ("kerple_log",),
    ),
    UseCase(
        "packed or padded batches", "any method, with the masks of attention, output and loss",
        padded, "padding_leakage.md",
        "Llama 3 masks other documents, arXiv 2407.21783", (),
    ),
    UseCase(
        "an encoder, classification", "`rope`",
        lambda: by_length("classification", "negation", 3), "classification.md",
        "ModernBERT rotates, arXiv 2412.13663", ("rope",),
    ),
    UseCase(
        "images at other sizes than trained", "`axial`, with positions squeezed into those trained",
        lambda: by_length("images", "digits", 8, ", interpolated"), "images.md",
        "rotations for two axes: arXiv 2403.13298", ("axial",),
    ),
    UseCase(
        "video and several modalities", "`mrope`",
        lambda: by_length("multimodal", "clips column", 8), "multimodal.md",
        "Qwen2-VL, arXiv 2409.12191", ("mrope",),
    ),
    UseCase(
        "algorithms and arithmetic", "for numbers `abacus`, by the place of each digit",
        by_content, "leaderboard.md",
        "Abacus: sums of 100 digits after 20, arXiv 2405.17399", ("abacus",),
    ),
    UseCase(
        "graphs and trees", "`laplacian`, `tree`", None, "encodings.md",
        "eigenvectors of graphs, arXiv 2012.09699", ("laplacian", "tree"),
    ),
)  # fmt: skip


def page() -> str:
    """Returns the page in Markdown."""
    gpu = json.loads((RESULTS / "gpu.json").read_text("utf-8"))["attention"]
    (device, measured), *_ = gpu.items()
    times = measured["found"]
    head = "| you have | start with | our evidence | published | cost | how sure |"
    lines = [head, "|---|---|---|---|---|---|"]
    for case in USE_CASES:
        ours = case.ours() if case.ours else Evidence(NONE, NONE)
        text = f"{ours.text} ([more]({case.page}))" if case.ours else NONE
        cells = case.case, case.start, text, case.published
        lines.append(f"| {' | '.join((*cells, cost(case.costs, times), ours.sure))} |")
    with runs.unpacked(RESULTS / "claims.tar.xz") as folder:
        claims = ledger(findings(load(*sorted(folder.iterdir()))))
    return "\n\n".join((
        "# Which encoding should I use?",
        "Find your row. \"Our evidence\" was measured in this repository, on small models; its "
        "link leads to the setting, the figure and the intervals over seeds. \"Published\" is what "
        "others report; it was not measured here. Where two methods are not told apart, take the "
        "cheaper one.",
        "\n".join(lines),
        f"Cost: parameters of the encoding in a model of {DIMS.layers} layers of width "
        f"{DIMS.model}; time of attention forward, and with all gradients, over that without "
        f"positions, {TOKENS:,} tokens on an {device.removeprefix('NVIDIA ').split()[0]} "
        f"({measured['machine']['date']}), [from here](speed.md).",
        "## What is said of them",
        claims,
        "Moving: a number that the verdict reads still changes with the training budget, by more "
        "than half of its interval.",
    )) + "\n"  # fmt: skip


def cost(names: Sequence[str], times: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """The parameters of methods, and their times over those of attention without positions.

    times: contestant -> "forward/TOKENS" and "backward/TOKENS" -> milliseconds of each round.
    """
    said = []
    for name in names:
        params = jax.tree.leaves(
            jax.eval_shape(posenc_jax.make(name).init, jax.random.key(0), DIMS)
        )
        size = f"`{name}`: {sum(leaf.size for leaf in params):,} parameters"
        if (contestant := f"posenc_jax, {name}") in times:
            forward, backward = (
                median(times[contestant][f"{part}/{TOKENS}"])
                / median(times[GPU][f"{part}/{TOKENS}"])
                for part in ("forward", "backward")
            )
            size += f", {forward:.1f} and {backward:.1f} times the time"
        said.append(size)
    return "; ".join(said)


def ledger(claims: Sequence[Finding]) -> str:
    """Returns a table of the claims that a choice depends on, with the verdicts of the ledger."""
    by_id = {finding.claim.id: finding for finding in claims}
    lines = ["| claim | our verdict |", "|---|---|"]
    lines += [f"| [{by_id[id].claim.text}](claims.md#{id}) | {noted(by_id[id])} |"
              for id in CLAIMS if id in by_id]  # fmt: skip
    return "\n".join(lines)


def parsed_flags() -> Flags:
    return Flags(__doc__)


@one_line
def main() -> None:
    """Writes the page."""
    path = ROOT / "docs" / "choosing.md"
    path.write_text(page(), "utf-8")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    parsed_flags().parse_args()
    sys.exit(main())
