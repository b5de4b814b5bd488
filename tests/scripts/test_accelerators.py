"""Programs compiled ahead of time for accelerators: what is read from them, and the table."""

import importlib
import json
import subprocess
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas

from posenc_jax import encodings, make
from posenc_jax.backends import form_choice, target
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.hosts import chips
from posenc_jax.lab.model import transformer
from scripts import compile_for
from scripts.accelerators import programs
from scripts.accelerators.collectives import collectives
from scripts.accelerators.first_training import first_training

COMPILER = Path(".venv-tpu/bin/python")  # made by `make .venv-tpu/.ready`
PAGE = Path("docs/speed.md")
CHECKED = "attention/rope/kernel/forward,attention/t5/dense/forward"  # compile in seconds
GATHER = """
  %s = (f32[8]{0}, f32[32]{0}) all-gather-start(%x), channel_id=7
  %d = f32[32]{0} all-gather-done(%s)
  %again = f32[32]{0} all-gather(%x), channel_id=7
  %r = f32[16]{0} all-reduce-start(%y), channel_id=8
"""
SCATTER = "  %shards = f32[1024]{0} reduce-scatter(%y), channel_id=2, replica_groups={{0,1}}\n"


@pytest.fixture(scope="module")
def raw():
    return json.loads(Path("results/accelerators.json").read_text("utf-8"))


def sent(text):
    return [(collective.kind, collective.bytes) for collective in collectives(text)]


def test_a_collective_that_is_in_the_text_several_times_counts_once():
    assert sent(GATHER) == [("all-gather", 128), ("all-reduce", 64)]
    apart = GATHER.replace("(%x), channel_id=7", "(%x), channel_id=9", 1)
    assert Counter(sent(apart))["all-gather", 128] == 2, "control"
    several = "".join(
        f"  %r = f32[16]{{0}} all-reduce(%y), channel_id=1, to_apply=%{region}\n"
        for region in ("sum.1", "sum.2", "sum.1.clone")
    )
    assert sent(several) == [("all-reduce", 64)] * 2, "sums that share a channel"


def test_a_reduce_scatter_has_the_bytes_that_its_group_reads():
    assert sent(SCATTER) == [("reduce-scatter", 2 * 4096)]
    mesh = "mesh['seeds'=3,'rows'=2] {'rows'}"  # as JAX 0.12 prints it
    assert sent(SCATTER.replace("{{0,1}}", mesh)) == sent(SCATTER)
    wider = SCATTER.replace("{{0,1}}", mesh.replace("{'", "{'seeds','"))
    assert sent(wider) == [("reduce-scatter", 3 * 8192)], "control"


def test_a_collective_in_a_loop_is_told_from_one_after_it():
    text = (
        f"%body.2 (s: f32[8]) -> f32[8] {{\n{SCATTER}}}\n\nENTRY %main (x: f32[8]) {{\n{GATHER}}}"
    )
    assert [collective.each_step for collective in collectives(text)] == [True, False, False]


KERNEL = """
def double(x):
    def body(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]

    return pallas.pallas_call(body, out_shape=x)(x)
"""


def test_a_kernel_has_the_same_text_wherever_its_source_stands():
    def text(line):
        names = {"pallas": pallas}
        exec(compile("\n" * line + KERNEL, "kernel.py", "exec"), names)
        traced = jax.jit(names["double"]).trace(jax.ShapeDtypeStruct((8, 128), jnp.float32))
        return traced.lower(lowering_platforms=("tpu",)).as_text()

    field, before = "jax_traceback_in_locations_limit", jax.config.jax_traceback_in_locations_limit
    assert text(0) != text(5), "control"
    jax.config.update(field, int(chips.environment("v5e")[field.upper()]))
    try:
        assert text(0) == text(5)
    finally:
        jax.config.update(field, before)


def record(temporary, **collectives):
    sizes = {kind.replace("_", "-"): size for kind, size in collectives.items()}
    return {"key": "a", "cpu_seconds": 2.0, "arguments": 10, "outputs": 0, "temporary": temporary,
            "collectives": sizes}  # fmt: skip


def test_a_difference_above_a_tenth_is_told():
    committed = record(100, all_reduce=[2, 50, 40])
    assert compile_for.differences(record(109, all_reduce=[2, 46, 40]), committed, "p") == []
    (line,) = compile_for.differences(record(111, all_reduce=[2, 50, 40]), committed, "p")
    assert line == "p/temporary: 111, committed 100"
    assert len(compile_for.differences(record(100, all_reduce=[3, 50, 40]), committed, "p")) == 1
    assert len(compile_for.differences(record(100), committed, "p")) == 1
    assert compile_for.differences({"failed": "no memory"}, committed, "p")
    assert compile_for.differences(committed, None, "p"), "a program that the record has not"


def test_a_row_has_the_largest_of_its_group_and_says_what_does_not_compile():
    failed = {"failed": "no memory"}
    names = ("step/rope/1/4/fsdp", "step/fox/1/4/fsdp", "step/t5/1/4/fsdp")
    sizes = (record(3e6, all_gather=[1, 5e6, 5e6]), record(20e6), failed)
    raw = {"v5e": {"made": {"jax": "1"}, "programs": dict(zip(names, sizes, strict=True))}}
    text = compile_for.table(raw)
    row = "| `step/*/1/4/fsdp` | 2 of 3 | 20 (fox) | 2.0 (fox) | 5.0 MB, all-gather |"
    assert row in text.splitlines()
    assert "- v5e, `step/t5/1/4/fsdp`: no memory" in text.splitlines()


@pytest.mark.thorough
def test_the_programs_of_an_experiment_are_known_without_training_it():
    config = importlib.import_module("configs.dna").get_config()
    first = first_training("dna", "rope")
    (_, train, _), (state, batches, rate_N) = first.chunk, first.arguments
    assert (train.steps, len(rate_N)) == (config.train.steps, 100)
    assert batches.tokens_BT.shape[:3] == (config.seeds, 100, config.train.batch)
    assert int(state.step.max()) == 0, "nothing is trained"
    assert list(first.evaluations) == list(config.eval.lengths)


@pytest.mark.parametrize("backend", ["gpu", "tpu"])
def test_the_states_to_compile_for_have_shapes_whatever_the_backend(backend):
    model = transformer.build(ModelConfig(width=8, heads=2, layers=1), make("rope"), 5)
    with target.compile_for(backend):
        actual = programs.states(model, TrainConfig(), seeds=3)
    assert {x.shape[0] for x in jax.tree.leaves(actual)} == {3}


def test_the_page_has_the_table_of_the_raw_numbers_in_40_lines(raw):
    table = compile_for.table(raw)
    assert table in PAGE.read_text("utf-8")
    assert table.count("\n") <= 40


def test_the_page_has_the_numbers_by_which_a_form_is_chosen():
    text = PAGE.read_text("utf-8")
    elsewhere = form_choice.DENSE_LOGITS_ELSEWHERE
    for logits in (form_choice.DENSE_LOGITS["cpu"], elsewhere, form_choice.KERNEL_LOGITS["gpu"]):
        assert f" {logits:,}" in text


def test_every_method_was_compiled_and_long_attention_holds_no_square(raw):
    """A bfloat16 array of 131,072 x 131,072 of one head has 34 GB."""
    v5e = raw["v5e"]["programs"]
    missing = {name for name in encodings.CATALOG if f"attention/{name}/dense/forward" not in v5e}
    assert missing == set()
    for chip in raw.values():
        assert not [name for name, program in chip["programs"].items() if "failed" in program]
        long = {name: program["temporary"] for name, program in chip["programs"].items()
                if name.endswith("/131072") and name.startswith("attention/")}  # fmt: skip
        assert max(long.values()) < 131072**2 * 2 / 6


def test_under_fsdp_gradients_are_not_summed_whole_on_each_chip(raw):
    steps = [p["collectives"] for name, p in raw["v5e"]["programs"].items()
             if name.startswith("step/") and name.endswith("/fsdp")]  # fmt: skip
    assert len(steps) == 8
    assert max(kinds["all-reduce"][2] for kinds in steps) <= 1e6
    assert max(kinds["reduce-scatter"][2] for kinds in steps) > 1e6, "control"


@pytest.mark.thorough
@pytest.mark.skipif(not COMPILER.exists(), reason="no compiler for TPUs: make .venv-tpu/.ready")
def test_programs_compile_as_recorded():
    command = [COMPILER, "scripts/compile_for.py", "v5e", f"--only={CHECKED}", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


PTXAS = """
ptxas info    : Compiling entry function 'forward_mosaic_gpu_kernel' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 121 registers, used 2 barriers, 1 bytes smem
ptxas info    : Compiling entry function 'backward_of_keys_mosaic_gpu_kernel' for 'sm_90a'
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 1 bytes smem
ptxas info    : Compiling entry function 'forward_mosaic_gpu_kernel' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 90 registers, used 2 barriers, 1 bytes smem
"""


def test_registers_of_kernels_in_mosaic(raw):
    """What ptxas says of each, and the most of each on the page."""
    assert compile_for.mosaic_kernels(PTXAS) == {"forward": [121, 0], "backward_of_keys": [255, 4]}
    assert compile_for.mosaic_table(raw) in PAGE.read_text("utf-8")
    kernels = [p["kernels"] for p in raw["h100"]["programs"].values() if "kernels" in p]
    assert len(kernels) > 20, "control"
    spilling = {
        kernel for numbers in kernels for kernel, (_, spilled) in numbers.items() if spilled
    }
    assert spilling <= {"gradient_of_numbers"}, "that of FIRE, which the page says"
