"""Combinations that published recipes use, by name, by combinator and in a config."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from configs import extrap
from posenc_jax import Dims, chain, make, per_layer
from posenc_jax.encoding import place
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training.batches import training_batches
from posenc_jax.lab.training.loop import chunk_runner, init_runner
from posenc_jax.lab.training.optimizers import optimizer, rates
from posenc_jax.layout import full
from tests.support.catalogue import gap, tokens

MODEL = ModelConfig(width=32, heads=4, layers=2, mlp=2)
RECIPES = [
    "randomized+rope",
    "randomized+alibi",
    "randomized+sinusoidal",
    "randomized+irope",
    "rope+alibi",
    "irope",
    "drope",
]


def test_recipes_are_names_in_a_config(tmp_path):
    """A config trains all of them side by side; the checks before a run take them."""
    config = extrap.get_config(",".join([*RECIPES, "quick"])).to_dict()
    assert config["encoding"]["name"].split(",") == RECIPES
    assert callable(experiments.prepare(config, str(tmp_path / "run")))
    config["encoding"]["name"] = "randomized+rope+xpos"
    with pytest.raises(ValueError, match="both turn the same channels"):
        experiments.prepare(config, str(tmp_path / "run"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "alibi", "learned"])
def test_randomized_with_any(name):
    """The part on the right is shown a sorted sample in training, and its spread in evaluation."""
    options = {"length": 64} if name == "learned" else {}
    both = make(f"randomized+{name}", limit=64, **options)
    at = full(3, 8)
    for key in (jax.random.key(1), None):
        shown_BT = jax.tree.leaves(place(both, key, at))[-1]
        assert bool((jnp.diff(shown_BT, axis=1) >= 1).all())
        assert float(shown_BT.max()) < 64
    drawn, again = (place(both, jax.random.key(n), at)[-1] for n in (1, 2))
    assert gap(drawn, again) > 0
    alone = place(make(name, **options), jax.random.key(1), at)
    assert gap(jax.tree.leaves(alone)[-1], at.pos_BT) == 0.0, "control: the part alone"


@pytest.fixture(scope="module")
def outputs():
    """Logits of one set of weights under several encodings without parameters."""
    rope, nope, alibi = make("rope", base=500_000.0), make("nope"), make("alibi")
    encodings = {
        "rope": rope,
        "nope": nope,
        "alibi": alibi,
        "rope+alibi": make("rope+alibi", base=500_000.0),
        "chain": chain(rope, alibi),
        "irope": make("irope", every=2),
        "by hand": per_layer([rope, nope]),
    }
    actual, weights = {}, None
    for name, encoding in encodings.items():
        model = transformer.build(MODEL, encoding, vocab=11)
        params = model.init(jax.random.key(0))
        weights = params if weights is None else {**weights, "encoding": params["encoding"]}
        actual[name] = model.apply(weights, tokens(0), full(2, 24))
    return actual


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("one", "same", "others"),
    [
        ("rope+alibi", "chain", ("rope", "alibi")),
        ("irope", "by hand", ("rope", "nope")),
    ],
)
def test_recipe_by_name_and_by_combinator(outputs, one, same, others):
    """A name and what it stands for are one encoding, and neither of its parts."""
    assert gap(outputs[one], outputs[same]) < 1e-5
    for other in others:
        assert gap(outputs[one], outputs[other]) > 1e-3


@pytest.mark.thorough
def test_drop_then_recalibrate():
    """Rope's state goes on training with no positions: the loss jumps, and falls again."""
    task = tasks.make("copy", alphabet=4)
    config = TrainConfig(
        length=5, min_length=5, batch=32, steps=120, lr=3e-3, warmup=10, chunk=60
    )  # fmt: skip
    with_rope, without = (
        transformer.build(MODEL, make(name), task.vocab) for name in ("rope", "drope")
    )
    shapes = [jax.eval_shape(m.init, jax.random.key(0)) for m in (with_rope, without)]
    assert shapes[0] == shapes[1], "one set of parameters serves both"
    state = init_runner(with_rope, optimizer(config), seeds=1)()
    batches = training_batches(task, config)
    rate_N = rates(config, range(120))
    state, trained = chunk_runner(with_rope, config, True)(state, batches([0], range(120)), rate_N)
    recalibration = config.model_copy(update={"steps": 240})
    rate_N = rates(recalibration, range(120, 240))
    recalibrate = chunk_runner(without, recalibration, True)
    state, after = recalibrate(state, batches([0], range(120, 240)), rate_N)
    rope_losses, losses = (np.asarray(metrics["loss"])[0] for metrics in (trained, after))
    assert int(state.step[0]) == 240
    assert losses[0] > rope_losses[-5:].mean() + 0.1, "dropping positions costs"
    assert losses[-5:].mean() < losses[0] - 0.1, "recalibration earns it back"


@pytest.mark.thorough
def test_dropped_positions_are_gone():
    """After dropping, a causal mask alone tells order: positions change nothing."""
    drope = make("drope", length=24)
    model = transformer.build(MODEL, drope, vocab=11)
    params = model.init(jax.random.key(0))
    at = full(2, 24)
    moved = at.replace(pos_BT=at.pos_BT * 3 + 1)
    assert gap(model.apply(params, tokens(0), at), model.apply(params, tokens(0), moved)) == 0.0
    assert drope.init(jax.random.key(0), Dims(32, 4, 8)) == {}
