"""The ledger at work: claims measured for real, written, read back and published."""

import json
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from configs import claims as config_file
from experiments.claims import activations, models
from experiments.claims import run as run_module
from experiments.claims.config import Config
from experiments.claims.decisions import findings
from experiments.claims.entries import load, made
from experiments.claims.fingerprint import fingerprint
from experiments.claims.ledger import Measured
from experiments.claims.models import Lab, Trained, misplaced, read_as
from experiments.claims.register import LEDGER
from posenc_jax import make
from posenc_jax.lab import runs
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.exit_status import Diverged, Unmeasured
from posenc_jax.lab.hosts.fast_training import linear
from posenc_jax.lab.model import transformer

CLOSED = {
    "sin-1": "holds when",
    "sin-2": "holds",
    "sin-4": "holds when",
    "sin-5": "holds",
    "sin-6": "holds when",
    "local-2": "holds when",
    "abs-2": "holds",
    "num-1": "does not hold",
}
TRAINED = "sin-3"


def small(ids):
    """The quick config with shared models that train in a moment."""
    config = config_file.get_config(f"{ids},quick")
    config.text.model.update(width=16, heads=2, layers=2)
    config.text.train.update(length=32, min_length=32, batch=4, steps=10, chunk=10, warmup=2)
    return config


@pytest.fixture(scope="module")
def lab():
    return Lab(schema.check(Config, small("all").to_dict()))


@pytest.mark.thorough
@pytest.mark.parametrize("id", CLOSED)
def test_a_closed_form_is_measured(lab, id):
    claim = LEDGER[id]
    measured = claim.measure(lab)
    verdict = claim.rule(measured.intervals)
    assert verdict.word == CLOSED[id], verdict.reason
    for values in measured.numbers.values():
        assert len(values) in (1, len(lab.seeds))
        assert np.isfinite(values).all()
    if claim.figure is not None:
        assert claim.figure(measured).axes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of two claims."""
    folder = tmp_path_factory.mktemp("run")
    experiments.prepare(small(f"sin-5,{TRAINED}").to_dict(), str(folder))()
    return folder


@pytest.mark.thorough
def test_a_run_is_written(run):
    content = json.loads((run / "claims.json").read_text())
    rows = content["measured"]
    assert [(row["id"], row["trains"]) for row in rows] == [(TRAINED, True), ("sin-5", False)]
    assert content["rules"] == {id: fingerprint(LEDGER[id]) for id in ("sin-5", TRAINED)}
    for row in rows:
        assert row["claim"] == LEDGER[row["id"]].text
        assert row["run"]["seeds"] == 3
        assert len(row["run"]["started"]) > 10
    text, page = (run / "claims.md").read_text(), (run / "report.html").read_text()
    for row in rows:
        assert row["verdict"] in text
        assert row["reason"] in text
        assert row["verdict"] in page
    assert "Scale quick" in text
    assert "Scale quick" in page
    summary = json.loads((run / "summary.json").read_text())
    assert summary["claims"] == {"sin-5": "holds", TRAINED: "not decided at this budget"}
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {r["labels"]["claim"] for r in records} == {"sin-5", TRAINED}
    assert {r["seed"] for r in records} == {0, 1, 2}


@pytest.mark.thorough
def test_the_same_seeds_give_the_same_verdicts(run, lab):
    for entry in load(run):
        again = entry.claim.measure(lab)
        assert entry.claim.rule(again.intervals).word == entry.verdict.word
        for name, values in entry.measured.numbers.items():
            np.testing.assert_allclose(values, again.numbers[name], rtol=1e-3, atol=1e-6)


@pytest.mark.thorough
def test_a_second_folder_completes_the_first(run, tmp_path):
    content = json.loads((run / "claims.json").read_text())
    for row, name in zip(content["measured"], ("a", "b"), strict=True):
        (tmp_path / name).mkdir()
        part = {**content, "measured": [row]}
        (tmp_path / name / "claims.json").write_text(json.dumps(part))
    entries = load(tmp_path / "b", tmp_path / "a")
    assert [e.claim.id for e in entries] == sorted([TRAINED, "sin-5"])


@pytest.mark.thorough
def test_the_script_publishes(run, tmp_path, capsys):
    main = runpy.run_path("scripts/claims.py")["main"]
    assert main([str(run), f"--to={tmp_path}"]) == 0
    text = (tmp_path / "docs" / "claims.md").read_text()
    assert f"![{TRAINED}](claims/{TRAINED}.svg)" in text
    assert (tmp_path / "docs" / "claims" / f"{TRAINED}.svg").stat().st_size > 1000
    assert main([str(tmp_path / "nothing"), f"--to={tmp_path}"]) == 2
    assert "nothing has no claims.json" in capsys.readouterr().err
    archive = tmp_path / "results" / "claims.tar.xz"
    assert main([str(archive), f"--to={tmp_path / 'again'}"]) == 0
    assert (tmp_path / "again" / "docs" / "claims.md").read_text() == text


@pytest.mark.parametrize(
    ("argument", "changes", "words"),
    [
        ("sin-2,sin-9", {}, ("config.claims", "sin-9", "sin-2")),
        ("sin-2", {"scale": "huge"}, ("config.scale", "huge", "quick")),
        ("sin-2", {"budgets": (1, 1)}, ("config.budgets", "1", "twice")),
        ("sin-2", {"text.model.kind": "encoder"}, ("config.text.model.kind", "encoder", "decoder")),
        ("sin-2", {"text.train.length": 10**6}, ("config.text.train.length", "1000000")),
        ("sin-2", {"text.task.name": "nothing"}, ("config.text.task.name", "nothing", "stdlib")),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(tmp_path, argument, changes, words):
    config = config_file.get_config(argument)
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=words[0]) as refused:
        experiments.prepare(config.to_dict(), str(tmp_path))
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.thorough
def test_a_model_is_trained_once(lab):
    trained = lab.trained("sinusoidal")
    assert lab.trained("sinusoidal") is trained
    assert lab.fresh(trained) is lab.fresh(trained) is not trained


@pytest.mark.thorough
def test_wrong_positions_cost_a_positional_model_alone(lab):
    """The control of claims on trained models."""
    trained = lab.trained("sinusoidal")
    cost = {
        name: lab.bits(read_as(misplaced(trained), name), 32) - lab.bits(read_as(trained, name), 32)
        for name in ("sinusoidal", "nope")
    }
    np.testing.assert_allclose(cost["nope"], 0, atol=1e-5)
    assert (np.abs(cost["sinusoidal"]) > 1e-4).all()


def untrained(lab, name):
    """A model of one seed."""
    encoding, config = make(name), lab.model
    model = transformer.build(config, encoding, lab.text.vocab)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(1), 1))
    return Trained(model, config, encoding, lab.text, params)


@pytest.mark.thorough
def test_attention_is_what_the_model_does(lab):
    """Its weights, put through the rest of the block, give the model's own next hidden state."""
    trained, tokens_BT = untrained(lab, "rope"), lab.windows(2)
    p_BHQK = activations.attention(trained, tokens_BT)[0][0]
    x_BTD, after_BTD = (h[0] for h in activations.hidden(trained, tokens_BT))
    block = jax.tree.map(lambda leaf: leaf[0], trained.params["block_0"])
    h_BTD = activations.normed(block["attention_norm"], jnp.asarray(x_BTD))
    v_BTHC = activations.project(block, "value", h_BTD, 2)
    o_BTD = jnp.einsum("bhqk,bkhc->bqhc", p_BHQK, v_BTHC).reshape(x_BTD.shape)
    dense = lambda name, x: linear(x, block[name]["kernel"], block[name]["bias"])
    x_BTD = x_BTD + dense("out", o_BTD)
    h_BTF = jax.nn.gelu(dense("up", activations.normed(block["mlp_norm"], x_BTD)))
    np.testing.assert_allclose(x_BTD + dense("down", h_BTF), after_BTD, atol=1e-4)
    assert not np.triu(p_BHQK, 1).any()
    np.testing.assert_allclose(p_BHQK.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.thorough
def test_a_claim_whose_model_diverges_is_not_measured_and_the_rest_is(tmp_path):
    """The other claims are measured, and the run names the one that was not at its end."""
    config = small(f"sin-5,{TRAINED}")
    config.text.train.update(lr=1e38)
    run = experiments.prepare(config.to_dict(), str(tmp_path))
    said = rf"^1 of 2 claims not measured: {TRAINED}: step \d+, seed \d: loss [^\n]* not made$"
    with pytest.raises(Unmeasured, match=said) as stopped:
        run()
    assert stopped.value.status == 1
    content = json.loads((tmp_path / "claims.json").read_text())
    rows = {row["id"]: row for row in content["measured"]}
    assert rows[TRAINED]["verdict"] == "not measured"
    assert rows[TRAINED]["numbers"] == {}
    assert rows["sin-5"]["verdict"] == "holds"
    lost, actual = findings(load(tmp_path))
    assert (str(lost.verdict), lost.verdict.reason) == ("not measured", rows[TRAINED]["reason"])
    assert actual.verdict.word == "holds", "control: the others are measured"
    assert "Not measured" in (tmp_path / "claims.md").read_text()
    assert runs.run_status(tmp_path, experiments.check(config.to_dict()).model_dump()) == "finished"


def test_a_number_that_is_not_finite_makes_no_verdict(lab):
    entry = made(LEDGER["sin-5"], lab, schema.check(Config, small("sin-5").to_dict()))
    assert entry.verdict.word == "holds", "control"
    name = next(iter(entry.measured.numbers))
    broken = entry._replace(measured=Measured({**entry.measured.numbers, name: [float("nan")]}))
    assert str(broken.verdict) == "not measured"
    assert name in broken.verdict.reason


@pytest.mark.thorough
def test_weights_are_kept_for_other_processes(tmp_path, monkeypatch):
    config = schema.check(Config, small("all").to_dict())
    first = Lab(config, 1, tmp_path / "models").trained("rope")
    monkeypatch.setattr(models, "train", None)
    again = Lab(config, 1, tmp_path / "models").trained("rope")
    jax.tree.map(np.testing.assert_array_equal, first.params, again.params)
    with pytest.raises(TypeError):  # control: at another budget the model is another one
        Lab(config, 2, tmp_path / "models").trained("rope")


@pytest.mark.thorough
def test_a_run_goes_on_with_the_budgets_that_are_missing(tmp_path, monkeypatch):
    config = small(f"sin-5,{TRAINED}")
    config.budgets = (1, 2)
    measured, stop_at = [], 2

    def stoppable(claim, lab, config):
        if lab.budget == stop_at:
            raise KeyboardInterrupt
        measured.append((claim.id, lab.budget))
        return made(claim, lab, config)

    monkeypatch.setattr(run_module, "made", stoppable)
    with pytest.raises(KeyboardInterrupt):
        experiments.prepare(config.to_dict(), str(tmp_path))()
    assert measured == [(TRAINED, 1), ("sin-5", 1)]
    stop_at = 0
    experiments.prepare(config.to_dict(), str(tmp_path))()
    assert measured == [(TRAINED, 1), ("sin-5", 1), (TRAINED, 2)]


def test_a_result_or_failure_is_computed_once(lab):
    calls = []

    def fail():
        calls.append(1)
        raise Diverged("step 3")

    for _ in range(2):
        with pytest.raises(Diverged, match="step 3"):
            lab.once("fails", fail)
    assert calls == [1]
