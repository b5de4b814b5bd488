"""Tokens per second, time of a step, waiting for data, peak memory and MFU of a training."""

import threading
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make
from posenc_jax.backends.target import compile_for
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.hosts import chips
from posenc_jax.lab.hosts.devices import peak_bytes
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training.loop import fit
from posenc_jax.lab.training.step import State
from posenc_jax.lab.training.throughput import (
    Meter,
    Stopwatch,
    Throughput,
    Timing,
    Work,
    flops_per_token,
    multiplied,
    typical,
    work,
)

TASK = tasks.make("periodic")


def built(encoding="rope", **fields) -> Any:
    """A config, its model and the shapes of its parameters."""
    config = ModelConfig(width=32, heads=4, layers=3, biases=(), norm="rmsnorm", **fields)
    model = transformer.build(config, make(encoding), TASK.vocab)
    return config, model, jax.eval_shape(model.init, jax.random.key(0))


def test_parameters_are_counted_as_torchtitan_does():
    """Without the table of embeddings, but with the read-out, also where the table is that."""
    config, _, params = built()
    norms, layers = (2 * 3 + 1) * 32, 3 * (4 * 32 * 32 + 2 * 32 * 128)
    assert multiplied(config, params) == norms + layers + 32 * TASK.vocab
    tied, _, tied_params = built(tied=True)
    assert multiplied(tied, tied_params) == multiplied(config, params)
    whole = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert whole == multiplied(config, params) + 32 * TASK.vocab, "control: the table"


def test_flops_are_those_of_the_matrix_products():
    """XLA counts the same for the products of a forward and a backward pass, two of three of which
    are backward; its own count includes what is no product.
    """
    config, model, params = built("nope")
    time_ = 64
    tokens = jnp.zeros((1, time_), jnp.int32)
    at = tasks.make("periodic").test(TASK.data, jnp.zeros(1, jnp.int32), time_, time_).layout
    forward = jax.jit(lambda p: model.apply(p, tokens, at)).lower(params)
    counted = forward.cost_analysis()["flops"]
    ours = (flops_per_token(config, params, time_) or 0) * time_ / 3
    assert ours == pytest.approx(counted, rel=0.1)
    attention = 12 * 3 * 32 * time_ * time_ / 3
    assert ours - attention != pytest.approx(counted, rel=0.1), "control: without attention"


def test_two_encodings_have_the_same_flops_and_other_shapes_have_not():
    flops = lambda name, length: flops_per_token(*built(name)[::2], length) or 0
    assert flops("rope", 16) == flops("t5", 16) == flops("learned+t5", 16)
    assert flops("rope", 32) - flops("rope", 16) == 12 * 3 * 32 * 16
    config, _, params = built()
    paired = config.model_copy(update={"kind": "encoder_decoder"})
    assert flops_per_token(paired, params, 16) is None


def test_tokens_of_a_step_are_those_that_are_no_padding():
    config, model, _ = built()
    train = TrainConfig(length=16, min_length=8, batch=4)
    mean = np.mean([TASK.width(n) for n in range(8, 17)])
    done = work(model, config, TASK, train)
    assert done.tokens == pytest.approx(4 * mean)
    assert done.tokens < 4 * TASK.width(16), "control: with padding"
    whole = work(model, config, TASK, train.model_copy(update={"min_length": 16}))
    assert (whole.flops or 0) > (done.flops or 0) > 0


def chip(kind):
    return types.SimpleNamespace(device_kind=kind, platform="tpu")


def test_rates_are_by_step_and_seed_and_mfu_is_of_all_seeds_and_devices():
    timing, done = Timing(2.0, 0.5), Work(tokens=100.0, flops=197e10)
    with compile_for("tpu", [chip("TPU v5 lite")] * 2):
        alone, together = [Meter(done, seeds)(4, timing) for seeds in (1, 3)]
    assert alone.steps_per_second == together.steps_per_second == 2.0
    assert alone.step_seconds == 0.5
    assert together.tokens_per_second == 200.0
    assert together.waiting_for_data == 0.25
    assert alone.mfu == pytest.approx(0.01)  # 2 x 1.97e12 of 2 x 197e12 FLOP/s
    assert together.mfu == pytest.approx(0.03)


@pytest.mark.parametrize(
    "kinds",
    [("cpu",), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb",), ("NVIDIA GeForce RTX 4090",),
     ("TPU v4", "TPU v9")],
)  # fmt: skip
def test_a_device_whose_peak_is_not_known_has_no_mfu(kinds):
    with compile_for("gpu", [chip(kind) for kind in kinds]):
        numbers = Meter(Work(100.0, 1e9), 1)(1, Timing(1.0, 0.0))
    assert numbers.mfu is None
    assert "mfu" not in numbers.values()
    assert not any("MFU" in word for word in numbers.words())


def test_peaks_are_of_whole_devices_by_their_names():
    named = {
        "TPU v4": 275, "TPU v5 lite": 197, "TPU v5e": 197, "TPU v5": 459, "TPU v5p": 459,
        "TPU v6 lite": 918, "TPU v6e": 918, "NVIDIA A100-SXM4-80GB": 312,
        "NVIDIA H100 80GB HBM3": 989, "NVIDIA H100 PCIe": 756, "NVIDIA H200": 989,
        "NVIDIA B200": 2250,
    }  # fmt: skip
    assert {name: chips.peak_flops(name) for name in named} == {
        name: 1e12 * peak for name, peak in named.items()
    }
    kinds = [kind for chip in chips.CHIPS.values() for kind in chip.peaks]
    assert len(kinds) == len(set(kinds))


def test_numbers_are_records_that_may_differ_between_equal_runs():
    assert runs.TIMES.issuperset(Throughput._fields)
    assert "loss" not in runs.TIMES


def test_typical_numbers_leave_out_compiling_and_one_odd_chunk():
    nan = float("nan")
    seconds = [(nan, 1), (2, 2), (2, 3), (5, 4)]
    chunks = [Throughput(1 / s, s, 1 / s, 0.0, m) for s, m in seconds]
    assert typical(chunks)[:3] == (0.5, 2.0, 0.5)
    assert typical(chunks).peak_memory_gib == 4, "it only grows"
    assert typical(chunks).mfu is None
    assert typical(chunks[:1]).words() == [], "nothing is known yet"
    assert typical(chunks).words()


def test_a_chunk_that_compiles_has_records_without_numbers():
    meter = Meter(Work(100.0, 1e9), 1)
    compiled, timed = meter(4, Timing(2.0, 0.5, compiles=True)), meter(4, Timing(2.0, 0.5))
    assert compiled.values().keys() == timed.values().keys(), "whether resumed or not"
    unknown = [name for name, value in compiled.values().items() if np.isnan(value)]
    assert set(unknown) == timed.values().keys() - {"peak_memory_gib"}
    assert not any(np.isnan(value) for value in timed.values().values())


def test_words_of_the_terminal_are_short():
    numbers = Throughput(12.3, 0.0813, 15_240.0, 0.031, 1.25, 0.342)
    assert "  ".join(numbers.words()) == (
        "81.3 ms/step  15.2k tokens/s  MFU 34.2%  1.25 GiB  waits 3%"
    )
    assert Throughput(1, 1, 999.7, 0).words()[1] == "1.00k tokens/s"
    steps = [Throughput(1, seconds, 1, 0).words()[0] for seconds in (0.9994, 0.9996, 12.34)]
    assert steps == ["999 ms/step", "1.00 s/step", "12.3 s/step"]


@pytest.mark.skipif(not peak_bytes(), reason="this system does not tell")
def test_the_peak_of_memory_grows_with_what_is_used():
    Path("/proc/self/clear_refs").write_text("5")  # the peak falls to what is in use now
    before = peak_bytes() or 0
    assert np.ones(2**25).sum() > 0  # 256 MiB
    assert (peak_bytes() or 0) > before


class Clock:
    """A clock that only moves when told: `now` for the host, `end` for the thread that waits."""

    def __init__(self):
        self.now = self.end = 0.0

    def __call__(self):
        return self.now if threading.current_thread() is threading.main_thread() else self.end


class Outputs:
    """Outputs of a chunk that a device has computed at a time."""

    def __init__(self, clock, end):
        self.clock, self.end = clock, end

    def block_until_ready(self):
        self.clock.end = self.end
        return self


def timings(compute, read_data, validate=0.0):
    """Timings of three chunks on a device that computes each in so many seconds."""
    clock, results, free = Clock(), [], 0.0
    with Stopwatch(clock) as stopwatch:
        for _ in range(3):
            with stopwatch.reading():
                clock.now += read_data
            free = max(free, clock.now) + compute
            results.append(stopwatch.dispatched(Outputs(clock, free), compiles=False))
            with stopwatch.pause():
                if validate:
                    clock.now = free = free + validate
        return [result.result() for result in results]


def test_waiting_is_what_reading_takes_longer_than_computing():
    assert timings(compute=8.0, read_data=2.0)[1:] == [Timing(8.0, 0.0)] * 2
    assert timings(compute=2.0, read_data=8.0)[1:] == [Timing(8.0, 6.0)] * 2
    assert timings(compute=2.0, read_data=8.0)[0] == Timing(10.0, 8.0)


def test_a_pause_for_validation_is_in_no_step():
    assert timings(compute=2.0, read_data=0.0, validate=8.0) == [Timing(2.0, 0.0)] * 3


def test_training_reads_the_time_of_each_chunk_and_waits_for_no_reader():
    """`read` of a chunk is called after the next one is dispatched."""
    order, compiles = [], []

    def advance(state, data, rate_N):
        order.append("dispatched")
        return state, {"loss": jnp.zeros((1, len(rate_N)))}

    def read(metrics, timing):
        order.append("read")
        assert metrics["loss"].shape == (1, 2)
        assert 0 <= timing.waited <= timing.seconds
        compiles.append(timing.compiles)

    state = State({}, {}, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32))
    rates = lambda steps: jnp.zeros(len(steps))
    fit(advance, rates, state, 6, 2, lambda steps: None, read)
    assert order == ["dispatched", "dispatched", "read", "dispatched", "read", "read"]
    assert compiles == [True, False, False]
