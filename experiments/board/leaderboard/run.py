"""Measures the methods of a leaderboard."""

from experiments.board.leaderboard import measure_method, predictions
from experiments.board.leaderboard.config import Config, left_out, trained
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.parallel_rows import measure_rows
from posenc_jax.lab import runs
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures every method; returns the summary, with the reasons of those not measured."""
    reasons = run.facts.get("reasons", {})
    if config.task.name in PROBLEMS and "predictions" not in run.facts:  # of the first start
        run.fact(predictions=predictions.fingerprint())

    def keep(name, result):
        run.log(result.records)
        if result.reason:
            reasons[name] = result.reason
            run.fact(reasons=reasons)

    title = f"leaderboard, {config.task.name}"
    measure_rows(run, title, list(trained(config)), measure_method.measurer, config, keep)
    return Summary(own={"not_measured": reasons, "left_out": left_out(config)})
