"""The same run on 8 devices, and on 2 processes of 2 devices, as on one."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from jax.sharding import PartitionSpec

from experiments.pretrained.run import along_largest
from posenc_jax.lab.hosts import devices, processes
from tests import mesh_attention
from tests.mesh_runs import HALF, trained
from tests.support.many_cases import summary_line

pytestmark = pytest.mark.thorough

RELATIVE = 1e-5  # of a loss: sums in another order


def started(folder, cases, count, environment=()):
    settings = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(count)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.mesh_runs", str(folder), *cases],
        stdout=subprocess.PIPE, text=True, env={**os.environ, **settings, **dict(environment)},
    )  # fmt: skip


def said(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory, kept_programs):
    """The cases trained on 1 device, on 4, on 8, and on 2 processes of 2 devices each."""
    folder = tmp_path_factory.mktemp("mesh")
    alone = ("rows", "seeds", "random", "tokens", "tokens go on", "tokens of seeds")
    one = {name: trained(folder, name) for name in alone}
    cases = ["rows", "seeds", "fsdp", "rows to fsdp", "random", "tokens", "tokens of seeds"]
    eight = said(started(folder, [*cases, "heads", "heads and fsdp"], 8))
    one["fsdp to rows"] = trained(folder, "fsdp to rows")
    four = said(started(folder, ["heads", "heads and fsdp", "four to four", "heads to four"], 4))
    for case in ("four to one", "heads to one"):
        one[case] = trained(folder, case)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    names = ["fsdp", "rows to fsdp", "eight to four", "four to four", "tokens", "tokens of seeds"]
    both = [
        started(
            folder, names, 2,
            zip(processes.OURS, ("2", str(process), address), strict=True),
        )
        for process in range(2)
    ]  # fmt: skip
    two = [said(process) for process in both]
    one["two processes to one"] = trained(folder, "two processes to one")
    return {"one": one, "four": four, "eight": eight, "two": two}


def close(actual, wanted, key="losses", first=0):
    """Whether losses, or scores, are those of one device, from step `first` on."""
    return np.allclose(actual[key], np.array(wanted[key])[..., first:], rtol=RELATIVE)


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("rows", "rows"),
        ("fsdp", "rows"),
        ("seeds", "seeds"),
        ("heads", "rows"),
        ("heads and fsdp", "rows"),
    ],
)
def test_eight_devices_give_the_losses_of_one(runs, case, wanted):
    assert runs["eight"]["devices"] == 8
    actual, alone = runs["eight"][case], runs["one"][wanted]
    other = {key: alone[key][::-1] for key in ("losses", "scores")} if wanted == "seeds" else {
        key: runs["one"]["seeds"][key][1:2] for key in ("losses", "scores")}  # fmt: skip
    for key in ("losses", "scores"):
        assert close(actual, alone, key)
        assert not close(actual, other, key), "control: other seeds"


def test_a_random_draw_is_that_of_the_whole_batch(runs):
    """Two seeds, four devices each, which show every row the positions that one device does."""
    for key in ("losses", "scores"):
        assert close(runs["eight"]["random"], runs["one"]["random"], key)
    swapped = {"losses": runs["one"]["random"]["losses"][::-1]}
    assert not close(runs["eight"]["random"], swapped), "control: other seeds"


def test_two_processes_of_two_devices_give_them_too(runs):
    """The rows of one seed over both, with FSDP; both read the same."""
    first, second = runs["two"]
    assert [first["first"], second["first"]] == [True, False]
    assert first["devices"] == second["devices"] == 4
    assert first["fsdp"] == second["fsdp"]
    for key in ("losses", "scores"):
        assert close(first["fsdp"], runs["one"]["rows"], key)
        control = {key: runs["one"]["seeds"][key][1:2]}
        assert not close(first["fsdp"], control, key), "control: another seed"


@pytest.mark.parametrize(("case", "other"), [("tokens", 1), ("tokens of seeds", 0)])
def test_tokens_are_those_of_one_process(runs, case, other):
    """On 8 devices, and on 2 processes, each of which reads the rows of its own devices alone."""
    wanted = runs["one"][case]
    control = np.array(runs["one"]["tokens of seeds"]["losses"])[other:]
    for actual in (runs["eight"], *runs["two"]):
        assert close(actual[case], wanted)
        assert close(actual[case], wanted, "scores")
        assert not close(actual[case], {"losses": control[:1]}), "control: another seed"
    whole, *parts = {
        "tokens": ([0, 1, 0, 8], [0, 1, 0, 4], [0, 1, 4, 8]),
        "tokens of seeds": ([0, 2, 0, 8], [0, 1, 0, 8], [1, 2, 0, 8]),
    }[case]
    assert wanted["rows read"] == runs["eight"][case]["rows read"] == 2 * [whole]
    assert [actual[case]["rows read"] for actual in runs["two"]] == [2 * [rows] for rows in parts]


def test_tokens_go_on_in_the_same_bits(runs):
    losses = np.array(runs["one"]["tokens"]["losses"])
    actual = np.array(runs["one"]["tokens go on"]["losses"])
    assert (actual == losses[:, HALF:]).all()
    assert runs["one"]["tokens go on"]["scores"] == runs["one"]["tokens"]["scores"]
    assert not (actual == losses[:, :HALF]).any(), "control: begun anew"


def test_a_checkpoint_goes_on_with_any_number_of_devices(runs):
    """1 to 8, 8 to 1, 1 and 8 to two processes of 2, and these to 1; over many, the state is
    spread, and each process writes and reads its share. A mesh of 2 x 2, rows and heads, with the
    state spread over both or over heads alone, to itself, to two processes and to 1.
    """
    wanted = runs["one"]["rows"]
    for actual in (
        runs["eight"]["rows to fsdp"], runs["one"]["fsdp to rows"],
        *(runs["two"][1][case] for case in ("rows to fsdp", "eight to four", "four to four")),
        *(runs["one"][case] for case in ("two processes to one", "four to one", "heads to one")),
        runs["four"]["four to four"], runs["four"]["heads to four"],
    ):  # fmt: skip
        assert close(actual, wanted, first=HALF)
        assert close(actual, wanted, "scores")
        fresh = {"losses": np.array(wanted["losses"])[:, :HALF]}
        assert not close(actual, fresh), "control: begun anew"


def test_collectives_of_a_step(runs):
    """None between seeds; between rows only sums of gradients; with FSDP also parameters."""
    said = {name: runs["eight"][name]["each step"] for name in ("seeds", "rows", "fsdp")}
    assert said["seeds"] == []
    # One sums the number of targets, the others loss and gradients, which XLA joins or not.
    assert set(said["rows"]) == {"all-reduce"}
    assert len(said["rows"]) <= 3
    assert set(said["fsdp"]) == {"all-reduce", "reduce-scatter", "all-gather"}


def test_attention_on_a_mesh_is_that_of_one_device(kept_programs):
    """Forward and backward, on Explicit axes, as `jax.make_mesh` makes them, and on Auto ones."""
    settings = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    ran = subprocess.run([sys.executable, "-m", "tests.mesh_attention", "--some"], text=True,
                         capture_output=True, env={**os.environ, **settings})  # fmt: skip
    cases = len(mesh_attention.SOME)
    assert ran.stdout == f"{summary_line(cases, passed=cases)}\n", ran.stdout + ran.stderr[-2000:]


@pytest.mark.parametrize("name", ["alibi", "learned", "liere"])
def test_attention_that_xla_does_not_partition_fails_on_explicit_axes(name, monkeypatch):
    """The control of the test before; of one device, too, other rows have other values."""
    traced = lambda: mesh_attention.traced(name, "auto", "rows")
    traced()
    monkeypatch.setattr("posenc_jax.meshes.explicit_mesh", lambda tree: None)
    with pytest.raises(Exception, match="shard"):
        traced()


def test_fsdp_leaves_each_device_its_share_of_the_state(runs):
    whole, share = runs["eight"]["fsdp"]["bytes"]
    assert share < 1.1 * whole / 8
    whole, share = runs["one"]["rows"]["bytes"]
    assert share == whole, "control"


def test_two_devices_share_the_heads_and_eight_what_fsdp_spreads(runs):
    """Norms, output biases and what the encoding learns are whole on each device."""
    whole, share = runs["eight"]["heads"]["bytes"]
    assert share < 1.1 * whole / 2
    whole, share = runs["eight"]["heads and fsdp"]["bytes"]
    assert share < 1.2 * whole / 8
    shares = {case: runs["four"][case]["bytes"] for case in ("heads", "four to four")}
    assert shares["heads"][1] < 1.1 * shares["heads"][0] / 2
    assert shares["four to four"][1] < 1.2 * shares["four to four"][0] / 4, "also if restored"


def test_processes_agree_on_memory_and_on_signals(runs):
    first, second = runs["two"]
    assert first["does not fit"] == second["does not fit"]
    assert "9.31e-08 GiB are free" in first["does not fit"]
    assert first["asked"] == second["asked"] == [True, False]


@pytest.mark.parametrize(
    ("rows", "environment", "asked"),
    [
        (128, {}, [("jax_num_cpu_devices", 4)]),
        (6, {}, [("jax_num_cpu_devices", 3)]),
        (7, {}, [("jax_num_cpu_devices", 1)]),
        (128, {"JAX_NUM_CPU_DEVICES": "2"}, []),
        (128, {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, []),
    ],
)
def test_cores_that_divide_the_rows_become_devices(rows, environment, asked, monkeypatch):
    """But for a number that the environment gives, which stays."""
    updates = []
    monkeypatch.setattr(devices.jax.config, "update", lambda *change: updates.append(change))
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: range(4), raising=False)
    monkeypatch.setattr(devices.os, "environ", environment)
    devices.use_cores(rows)
    assert updates == asked


@pytest.fixture
def joined(monkeypatch):
    """The arguments with which jax.distributed would be started; None if it would not be."""

    def join(**environment):
        calls = []
        monkeypatch.setattr(processes.jax.distributed, "initialize", lambda **k: calls.append(k))
        monkeypatch.setattr(processes.jax.config, "update", lambda *change: None)
        processes.join(environment)
        return calls[0] if calls else None

    return join


ARRAY_JOB = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_PROCID": "0"}


def test_a_plain_machine_and_a_job_of_one_task_start_nothing(joined):
    assert joined() is None
    assert joined(**ARRAY_JOB, SLURM_STEP_NUM_TASKS="1") is None
    assert joined(SLURM_NTASKS="4") is None, "the batch script itself: no step of several"
    assert joined(JAX_NUM_PROCESSES="1", JAX_PROCESS_ID="0", JAX_COORDINATOR_ADDRESS="a:1") is None


def test_launchers_of_several_tasks_are_joined(joined):
    asked = joined(JAX_NUM_PROCESSES="2", JAX_PROCESS_ID="1", JAX_COORDINATOR_ADDRESS="a:1")
    assert asked is not None
    assert (asked["num_processes"], asked["process_id"]) == (2, 1)
    for name in processes.LAUNCHERS:
        asked = joined(**ARRAY_JOB, **{name: "4"})
        assert asked is not None
        assert "num_processes" not in asked, "JAX reads the rest itself"


def test_on_a_tpu_the_slice_tells_the_number_of_processes(joined, monkeypatch):
    monkeypatch.setattr(processes, "_on_tpu", lambda environment: True)
    assert joined() is not None
    assert joined(JAX_NUM_PROCESSES="1", JAX_PROCESS_ID="0", JAX_COORDINATOR_ADDRESS="a:1") is None


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"JAX_NUM_PROCESSES": "2"}, "^JAX_PROCESS_ID: must be set, as JAX_NUM_PROCESSES is$"),
        ({"SLURM_STEP_NUM_TASKS": "two"}, "^SLURM_STEP_NUM_TASKS: 'two' is not a number of proc"),
        (
            dict(zip(processes.OURS, ("2", "2", "a:1"), strict=True)),
            "^JAX_PROCESS_ID: 2 is not one of 0 to 1$",
        ),
    ],
)
def test_what_does_not_name_a_process_is_refused_in_one_line(joined, environment, line):
    with pytest.raises(ValueError, match=line):
        joined(**environment)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((256, 768), 0), ((768, 3072), 1), ((257, 768), 1), ((3, 3072), 1), ((0, 4), 1), ((3,), None)],
)
def test_fsdp_spreads_along_whole_tiles_of_a_tpu(shape, axis):
    """Parts of 8 rows or 128 columns; the larger dimension where both are, or where neither is."""
    actual = devices._largest(shape, 4)
    assert (actual if actual is None else len(actual) - 1) == axis


@pytest.mark.parametrize(("shape", "axis"), [((4096, 32000), 1), ((11008, 4096), 0), ((6, 8), 1)])
def test_released_models_are_spread_along_their_largest_axis(shape, axis):
    assert along_largest(shape, 4).index("rows") == axis
    assert along_largest((5, 7), 4) == along_largest((), 4) == PartitionSpec()


def test_fsdp_would_split_the_read_out_of_llama_along_its_sum():
    """The control of the test before."""
    assert devices._largest((4096, 32000), 4) == PartitionSpec("rows")
