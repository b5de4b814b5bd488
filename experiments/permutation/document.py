"""The page of the experiment in docs/."""

from collections.abc import Mapping, Sequence

from experiments.permutation.config import CAUSAL, LSTM
from experiments.permutation.pages import EQUIVARIANT, listed, sections, worst
from posenc_jax.lab.report import Grid, Section
from posenc_jax.lab.report.summaries import only
from posenc_jax.lab.runs import StoredRun


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/. ValueError: more than one run."""
    run = only(runs)
    return conclusions(run.summary.own), [*sections(run)[1], _seeds(run.summary.own)]


def conclusions(summary: Mapping) -> list[str]:
    """Three sentences made from the numbers: on order, on equivariance, on hidden bytes."""
    order, text = summary["order"], summary["text"]
    encoders = [name for name in order if name not in (CAUSAL, LSTM)]
    every = lambda value: [n for n in order if all(v == value for v in order[n]["pairs"].seeds)]
    half, solved = every(0.5), [n for n in every(1.0) if n in encoders]
    without = [f"{name} {order[name]['pairs'].mean:.3f}" for name in (CAUSAL, LSTM)
               if name in order]  # fmt: skip
    kept = [n for n in encoders if worst(order[n], "error") < EQUIVARIANT]
    carried = [n for n in encoders if n not in kept and worst(order[n], "carried") < EQUIVARIANT]
    lines = [
        f"{len(solved)} of {len(encoders)} methods in an encoder put all pairs of tokens in order, "
        f"in every seed; exactly one half, in every seed: {listed(half)}; without an encoding, "
        f"share of pairs in order: {listed(without)}.",
        f"A permutation of the tokens permutes the outputs, up to {EQUIVARIANT:g}, with "
        f"{listed(kept)}; when each position moves along with its token, this also holds for "
        f"{len(carried)} of the other {len(encoders) - len(kept)} methods.",
    ]
    if text:
        bits = [f"{cell.mean:.2f} with {name}" for name, cell in text.items()]
        bits += [f"{value:.2f} for {name}" for name, value in summary["text_baselines"].items()]
        lines.append(f"Bits for each hidden byte of real text: {', '.join(bits)}.")
    return lines


def _seeds(summary: Mapping) -> Section:
    """The values of every seed, folded."""
    row = lambda cell: " ".join(f"{value:.3f}" for value in cell.seeds)
    order = [(name, *(row(cells[task]) for task in ("pairs", "triples")))
             for name, cells in summary["order"].items()]  # fmt: skip
    parts = [Grid(("method", "pairs", "triples"), order, "Share put in order, every seed.")]
    if summary["text"]:
        text = [(name, row(cell)) for name, cell in summary["text"].items()]
        parts.append(Grid(("encoding", "bits per hidden byte"), text, "Every seed."))
    return Section("Every seed", parts, folded=True)
