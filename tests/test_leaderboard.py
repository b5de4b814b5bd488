"""The leaderboard: who is measured, on what examples, and how the board is made from records."""

import importlib
import json

import jax
import numpy as np
import pytest

import experiments
from experiments import leaderboard, workers
from experiments.leaderboard import measure, standings
from posenc_jax import runs


def config_of(argument="quick", **changes):
    config = importlib.import_module("configs.leaderboard").get_config(argument)
    with config.unlocked():
        config.model.update(width=16, heads=2, layers=1)
        config.train.update(steps=4, chunk=4)
        config.update(changes)
    return config


def checked(argument="quick", **changes):
    return leaderboard.Config.model_validate(config_of(argument, **changes).to_dict())


def test_all_is_what_the_tasks_can_be_read_by():
    """Methods for images are left out, and those whose groups no task states."""
    found = leaderboard.names(checked(""))
    assert {"nope", "rope", "randomized+rope", "fox", "irope"} <= set(found)
    assert not {"axial", "mrope", "swin_2d", "abacus+rope", "coupled+rope"} & set(found)
    sums = ({"name": "addition", "groups": "place"},)
    assert "abacus+rope" in leaderboard.names(checked("", tasks=sums))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "t5"}, "config.reference: 't5' is not measured; choose one of: nope, rope"),
        ({"multiples": (2, 4)}, r"config.multiples: \(2, 4\) must rise from 1"),
        ({"multiples": (1, 4, 2)}, "config.multiples"),
        ({"window": 2}, "config.window: 2 tokens hold no copy; 4 or more"),
        ({"encoding": {"name": "rope,axial"}}, "config.encoding.name: axial reads positions"),
        ({"encoding": {"name": "rope", "slope": 1}}, "encoding.slope: rope takes no such option"),
    ],
)
def test_refused_in_one_line(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        experiments.prepare(config_of(**changes).to_dict(), str(tmp_path / "run"))
    assert "\n" not in str(caught.value)


def test_pools_hold_the_tasks_own_examples():
    config = checked(multiples=(1, 3))
    (pool,) = measure.draw_pools(config)
    assert pool.train.tokens_BT.shape == (config.pool, config.window)
    assert [batch.tokens_BT.shape[1] for batch in pool.test] == [32, 96]
    sizes = [measure.largest(pool.task.width, 1, None, width) for width in (32, 96)]
    assert [pool.task.width(size) for size in sizes] == [32, 96]
    wanted = pool.task.test(pool.task.data, np.arange(config.examples), sizes[1], 96)
    np.testing.assert_array_equal(pool.test[1].tokens_BT, wanted.tokens_BT)
    sample = measure.pooled(200, 32).sample
    batch = sample(pool.train, jax.random.key(0), np.zeros(8), 32)
    held = {row.tobytes() for row in np.asarray(pool.train.tokens_BT)}
    assert all(row.tobytes() in held for row in np.asarray(batch.tokens_BT))
    assert len({row.tobytes() for row in np.asarray(batch.tokens_BT)}) > 1


def records(values, window=32):
    """Records of two tasks, three seeds and two windows from method -> (within, beyond)."""
    for method, ends in values.items():
        base = {"step": 1, "encoding": method}
        for seed in range(3):
            fact = {**base, "seed": seed, "split": "train", "length": window}
            yield {**fact, "metric": "parameters", "value": 7.0}
            yield {**fact, "metric": "time/seconds", "value": 1.0}
            for task, noise in (("copy", 0.004), ("sort", -0.003)):
                for length, value in zip((window, 2 * window), ends, strict=True):
                    score = value + noise * (seed - 1)
                    yield {**base, "seed": seed, "split": "test", "length": length,
                           "metric": f"{task}/token_accuracy", "value": score}  # fmt: skip


def test_board_compares_in_pairs_with_the_reference():
    """A clear difference is marked, one within the noise of the seeds is not."""
    values = {"rope": (0.9, 0.3), "far": (0.9, 0.5), "near": (0.7, 0.3), "same": (0.9, 0.3)}
    noisy = list(records(values))
    for record in noisy:
        if record["encoding"] == "same" and record["split"] == "test":
            record["value"] += 0.05 * (-1) ** record["seed"]
    summary = standings.summarise(noisy, "rope", {"lost": "out of memory"})
    rows = summary["rows"]
    assert next(iter(rows)) == "far"
    assert rows["far"]["gain"]["mean"] == pytest.approx(0.2)
    assert rows["near"]["cost"]["mean"] == pytest.approx(0.2)
    sign = lambda name, what: standings._clear(rows[name][what])
    assert (sign("far", "gain"), sign("far", "cost")) == (1, 0)
    assert (sign("near", "gain"), sign("near", "cost")) == (0, 1)
    assert (sign("same", "gain"), sign("same", "cost")) == (0, 0)
    assert "gain" not in rows["rope"]
    assert summary["tasks"]["sort"]["far"]["64"] == pytest.approx([0.503, 0.5, 0.497])


def test_run_in_processes_of_their_own(tmp_path, capsys, monkeypatch):
    """Two workers give what one gives, and the folder holds every seed, the page and the board."""
    found = []
    for cores in ([0], [0, 1]):
        monkeypatch.setattr(workers, "cores", lambda cores=cores: cores)
        monkeypatch.setattr(workers, "ROWS", 1)
        workdir = tmp_path / str(len(cores))
        config = config_of("rope,nope,quick", examples=8, pool=64)
        experiments.prepare(config.to_dict(), str(workdir))()
        stored = runs.read(workdir)
        kept = [r for r in stored.records if not r["metric"].startswith("time/")]
        found.append(
            {(r["encoding"], r["metric"], r["seed"], r["length"]): r["value"] for r in kept}
        )
    assert found[0].keys() == found[1].keys()
    assert all(found[1][key] == pytest.approx(found[0][key], abs=0.02) for key in found[0])
    assert "gain beyond" in capsys.readouterr().out
    assert (workdir / "report.html").stat().st_size > 10_000
    text = standings.markdown(stored, "leaderboard.png")
    assert "| rope |" in text
    assert json.loads((workdir / "summary.json").read_text())["rows"]["nope"]["parameters"] == 0
