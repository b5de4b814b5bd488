"""Training: pure steps whose result depends on seed and step alone."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax import make
from posenc_jax.backends.target import compile_for
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig, check
from posenc_jax.lab.metrics import cross_entropy
from posenc_jax.lab.model import transformer
from posenc_jax.lab.runs.checkpoints import Checkpoints, fill, named_leaves
from posenc_jax.lab.training.batches import training_batches
from posenc_jax.lab.training.loop import (
    Trainer,
    chunk_runner,
    chunk_sizes,
    fit,
    from_weights,
    init_runner,
    train,
    validation_steps,
)
from posenc_jax.lab.training.optimizers import make as make_optimizer
from posenc_jax.lab.training.optimizers import optimizer, rates
from posenc_jax.options import FieldError
from tests.support.catalogue import gap

TASK = tasks.make("copy", alphabet=8)
CONFIG = TrainConfig(length=6, min_length=1, batch=8, steps=6, lr=1e-2, warmup=2, chunk=3)


@functools.cache
def run(name="rope", seeds=2, first_seed=0, loss_mask=True, layers=1, kind="decoder", **changes):
    shape = ModelConfig(kind=kind, width=32, heads=4, layers=layers)
    model = transformer.build(shape, make("nope" if kind == "lstm" else name), TASK.vocab)
    config = CONFIG.model_copy(update=changes)
    chunks = []
    read = lambda metrics, seconds: chunks.append(metrics["loss"])
    state = train(model, TASK, config, seeds, first_seed, loss_mask, read)
    return state, np.concatenate(chunks, axis=1)


@pytest.mark.thorough
def test_chunks_change_nothing():
    state, losses = run()
    other, same = run(chunk=4)
    assert losses.shape == (2, 6)
    np.testing.assert_allclose(losses, same, rtol=1e-6)
    assert gap(state.params, other.params) < 1e-5
    assert chunk_sizes(6, 4) == [4, 2]


@pytest.mark.parametrize(
    ("steps", "chunk", "wanted"),
    [(6, 3, {3, 6}), (7, 3, {3, 6, 7}), (1000, 20, {140, 280, 420, 560, 700, 840, 980, 1000})],
)
def test_a_training_is_validated_between_chunks_and_at_its_end(steps, chunk, wanted):
    assert validation_steps(steps, chunk) == wanted


@pytest.mark.thorough
def test_validation_sees_the_weights_of_its_step_and_changes_none():
    """And the time that a slow `read` takes from the device is in that of a chunk."""
    state, _ = run()
    seen, spent = {}, []

    def read(metrics, timing):
        spent.append(timing.seconds)
        time.sleep(0.2)

    model = transformer.build(ModelConfig(width=32, heads=4, layers=1), make("rope"), TASK.vocab)
    validate = lambda at, step: seen.update({step: np.asarray(at.step).tolist()})
    config = CONFIG.model_copy(update={"chunk": 2})
    again = train(model, TASK, config, 2, 0, True, read, validate=validate)
    assert seen == {2: [2, 2], 4: [4, 4], 6: [6, 6]}
    assert spent[2] > 0.15
    assert gap(state.params, again.params) == 0


def test_a_seed_is_the_same_alone_and_in_company():
    _, together = run()
    _, alone = run(seeds=1, first_seed=1)
    np.testing.assert_allclose(together[1], alone[0], rtol=1e-6)
    assert abs(together[0] - alone[0]).max() > 1e-3, "control: another seed"


@pytest.mark.thorough
def test_rates_averages_and_the_end_are_those_asked_for():
    """Of a training whose batches are given: each seed has its rate and its average of weights."""
    model = transformer.build(ModelConfig(width=16, heads=2, layers=1), make("rope"), TASK.vocab)
    plain = Trainer(model, make_optimizer(optax.constant_schedule(1e-2), 1.0, 0.01))
    whole = Trainer(model, make_optimizer(optax.constant_schedule(1.0), 1.0, 0.01), average=4)
    sizes_B = jnp.full((8,), 4, jnp.int32)
    batch = TASK.sample(TASK.data, jax.random.key(1), sizes_B, TASK.width(6))
    rows = jax.tree.map(lambda leaf: jnp.stack([leaf[None]] * 2), batch)
    seen, rates = [], [1e-2, 1e-3]

    def after(state, step, metrics):
        seen.append(jax.device_get((state.params, state.average)))
        return step == 3

    state = whole.start([0, 0], rates)
    first = jax.device_get(state.average)
    done = fit(whole.advance, whole.rates, state, 9, 1, lambda steps: rows, after=after)
    assert done.step.tolist() == [3, 3]
    average = first
    for params, held in seen:
        average = jax.tree.map(lambda a, p: a + (p - a) / 4, average, params)
        assert gap(average, held) < 1e-6
    assert gap(average, params) > 1e-3, "control"
    alone = fit(plain.advance, plain.rates, plain.start([0]), 3, 1,
                lambda steps: jax.tree.map(lambda leaf: leaf[:1], rows))  # fmt: skip
    params_of = lambda n: jax.tree.map(lambda leaf: leaf[n], done.params)
    alone_params = jax.tree.map(lambda leaf: leaf[0], alone.params)
    assert gap(params_of(0), alone_params) < 1e-5
    assert gap(params_of(1), alone_params) > 1e-3, "control: another rate"
    started = plain.start([7], params=jax.tree.map(lambda leaf: leaf[None], alone_params))
    assert gap(started.params, alone.params) == 0


@pytest.mark.thorough
def test_it_learns():
    _, losses = run(steps=150, chunk=50)
    assert losses[:, -10:].mean() < 0.7 * losses[:, 0].mean()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("backend", "changes"),
    [
        ("cpu", {"accumulate": 4, "remat": True}),
        ("cpu", {"remat": True, "remat_policy": "products"}),
        ("tpu", {"accumulate": 4, "remat": True}),
        ("cpu", {"kind": "lstm", "remat": True}),
    ],
    ids=["decoder", "products", "decoder scanned", "lstm"],
)
def test_steps_that_save_memory_are_the_plain_steps(backend, changes):
    _, plain = run(layers=2, kind=changes.get("kind", "decoder"))
    with compile_for(backend):
        _, losses = run.__wrapped__(layers=2, **changes)
    np.testing.assert_allclose(losses, plain, rtol=1e-5)
    assert abs(np.roll(losses, 1, axis=1) - plain).max() > 1e-3, "control: each loss is another"


@pytest.mark.thorough
def test_they_take_less_memory():
    model = transformer.build(ModelConfig(width=16, heads=2, layers=4), make("nope"), TASK.vocab)

    def needed(**changes):
        config = CONFIG.model_copy(update={"length": 24, **changes})
        with compile_for("tpu"):
            state = init_runner(model, optimizer(config), 1).eval_shape()
            batches = training_batches(TASK, config).shapes(1, 1)
            lowered = chunk_runner(model, config, True).lower(state, batches, jnp.ones(1))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    plain = needed()
    assert needed(accumulate=4) < plain / 2
    assert needed(remat=True) < plain / 2
    assert needed(remat=True) < needed(remat=True, remat_policy="products") < plain


def test_parts_divide_the_batch():
    with pytest.raises(FieldError, match=r"batch 8 .* accumulate 3; .* 1, 2, 4, 8"):
        check(TrainConfig, {"batch": 8, "accumulate": 3})


@pytest.mark.thorough
def test_the_loss_mask_keeps_padding_out():
    _, masked = run()
    _, unmasked = run(loss_mask=False)
    assert abs(masked - unmasked)[:, 0].max() > 1e-3, "the first loss, of the same weights"


def test_cross_entropy_is_that_of_float64():
    logits = np.random.default_rng(0).normal(size=(2, 3, 7)).astype(np.float32) * 10
    targets = np.array([[1, 2, 3], [4, 5, 6]])
    wide = logits.astype(np.float64)
    wanted = np.log(np.exp(wide).sum(-1)) - np.take_along_axis(wide, targets[..., None], -1)[..., 0]
    got = cross_entropy(jnp.asarray(logits), jnp.asarray(targets))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


# After an intended change of model, task or initialisation, copy the values that this test prints.
GOLDEN = {
    "nope": 2.996358,
    "rope": 3.003046,
    "alibi": 3.004524,
    "sinusoidal": 2.854077,
    "t5": 2.988338,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_first_loss(name):
    _, losses = run(name, seeds=1, layers=2, steps=2)
    assert float(losses[0, 1]) == pytest.approx(GOLDEN[name], abs=2e-4), (
        f"the loss of the second step is now {losses[0, 1]:.6f}; update GOLDEN if that is meant"
    )


def test_trainings_of_other_lengths_rates_and_schedules_share_a_program():
    """The learning rates are an argument; the weight decay, the control, is not."""
    model = transformer.build(ModelConfig(width=8, heads=1, layers=1), make("nope"), TASK.vocab)

    def program(**changes):
        config = CONFIG.model_copy(update=changes)
        state = init_runner(model, optimizer(config), 1).eval_shape()
        runner, batches = chunk_runner(model, config, True), training_batches(TASK, config)
        return runner.lower(state, batches.shapes(1, 2), rates(config, range(2))).as_text()

    wsd = CONFIG.schedule.model_copy(update={"name": "wsd"})
    plain = program()
    assert plain == program(steps=5000, warmup=7, lr=0.5, schedule=wsd)
    assert plain != program(decay=0.5), "control"
    longer, shorter = (rates(CONFIG.model_copy(update={"steps": n}), range(9)) for n in (10, 5000))
    assert abs(longer - shorter).max() > 0


def test_a_step_is_compiled_once(tmp_path):
    """The first state lies where the later ones do, also one that was restored or that begins with
    weights. On one device its place differed, by which the program of a chunk was compiled again
    for the second one.
    """
    model = transformer.build(ModelConfig(width=16, heads=2, layers=1), make("rope"), TASK.vocab)
    trainer = Trainer(model, optimizer(CONFIG))
    batches = functools.partial(training_batches(TASK, CONFIG), [0])
    programs = trainer.advance, trainer.rates
    initial = init_runner(model, optimizer(CONFIG), 1)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, initial(), {})
    checkpoints.wait()
    leaves = named_leaves(jax.device_get(initial().params))
    weights = fill(initial().params, leaves)
    starts = {
        "first": trainer.start([0]),
        "of a training": initial(),
        "restored": checkpoints.restore(0, initial()),
        "from weights": from_weights(CONFIG, initial(), weights),
    }
    for name, start in starts.items():
        fit(*programs, start, 6, 3, batches)
        assert trainer.advance._cache_size() == 1, name  # pyright: ignore[reportAttributeAccessIssue]
    elsewhere = jax.device_put(initial(), jax.devices()[0])
    fit(*programs, elsewhere, 6, 3, batches)
    assert trainer.advance._cache_size() == 2, "control"  # pyright: ignore[reportAttributeAccessIssue]
