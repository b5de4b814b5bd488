"""Measures the methods of a leaderboard, and reports the board."""

from experiments import workers
from experiments.leaderboard import measure, standings
from experiments.leaderboard.config import Config, left_out, names
from posenc_jax.lab import report, runs
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.training.progress import Progress


def run(config: Config, workdir: str) -> None:
    """Measures every method, its records kept as it ends, then writes and prints the board."""
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        methods = [name for name in names(config) if not record.ended(name)]
        for name in methods[:1]:
            record.begin(name)
        reasons = record.facts.get("reasons", {})
        with Progress(len(methods), "leaderboard") as progress:
            for done, result in enumerate(workers.measured(measure.measurer, config, methods), 1):
                record.log(result.records)
                if result.reason:
                    reasons[result.name] = result.reason
                    record.fact(reasons=reasons)
                failpoints.reach("measured")
                record.end(result.name)
                progress.update(done)
                signals.stop_if_requested()
        record.finish(
            standings.summarise(record.records(), config.reference, reasons, left_out(config))
        )
        show(workdir)


def show(workdir: str) -> None:
    """The board of a finished run again, from its folder."""
    report.present(workdir, *standings.sections(runs.read(workdir)))
