"""Records of a small run by length, and the run that they make."""

import io

from rich.console import Console

from posenc_jax.lab import report, runs

LENGTHS = (8, 16, 32)
NASTY = '<script src="https://example.org/x.js"></script>&"\''


def record(seed, encoding, length, value, step=60, metric="bits_per_byte", **labels):
    labels = {"encoding": encoding, "split": "test", "length": length, **labels}
    return {"step": step, "seed": seed, "labels": labels, "metric": metric, "value": value}


def make_records(seeds=3):
    actual = []
    for seed in range(seeds):
        for i, encoding in enumerate(("rope", "randomized+rope")):
            actual += [
                record(seed, encoding, 8, 5.0 - step / 60, step=step, split="train", metric="loss")
                for step in (20, 40, 60)
            ]
            for length in LENGTHS:
                value = 2 + i / 4 + 0.01 * seed + (length / 64)
                actual.append(record(seed, encoding, length, 9.0, step=30))  # not the last step
                actual.append(record(seed, encoding, length, value))
                actual.append(record(seed, encoding, length, 0.5, metric="evaluation_seconds"))
                actual += [record(seed, encoding, length, 7.0, position=p) for p in (0, 1, 4)]
    return actual


def summarise(records):
    return report.summarise(
        records,
        metric="bits_per_byte",
        train_length=8,
        baselines={"bigram": 3.5, "unigram": 40.0},
        not_measured=[{"encoding": "learned", "length": 32, "reason": "it reaches 16 positions"}],
    )


def write_run(path, records, config=None):
    with runs.Run(path, {"experiment": "length_extrapolation", **(config or {})}) as run:
        run.log(records)
        run.fact(corpus={"sha256": "ab"})
        run.finish(summarise(records))
    return path


def shown(workdir):
    """Makes the report of a run; returns the text of its page."""
    report.show(workdir, console=Console(file=io.StringIO()))
    return (workdir / "report.html").read_text("utf-8")
