"""Measures the methods of a leaderboard."""

from experiments.leaderboard import measuring
from experiments.leaderboard.config import Config, left_out, trained
from experiments.leaderboard.pages import sections
from experiments.workers import measure_rows
from posenc_jax.lab import runs
from posenc_jax.lab.summary import Summary

__all__ = ["measure", "sections"]


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures every method; returns the summary, with the reasons of those not measured."""
    reasons = run.facts.get("reasons", {})

    def keep(name, result):
        run.log(result.records)
        if result.reason:
            reasons[name] = result.reason
            run.fact(reasons=reasons)

    title = f"leaderboard, {config.task.name}"
    measure_rows(run, title, list(trained(config)), measuring.measurer, config, keep)
    return Summary(own={"not_measured": reasons, "left_out": left_out(config)})
