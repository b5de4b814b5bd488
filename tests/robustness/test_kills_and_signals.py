"""Runs ended by signals, at failpoints and at random moments: a resumed run ends in the same bits.

After SIGTERM and SIGINT a run must also leave a checkpoint, in seconds, with status 75.
"""

import itertools
import random
import signal

import pytest

from posenc_jax.lab.hosts.signals import STOP_SIGNALS
from posenc_jax.lab.tasks.tokens import documents
from posenc_jax.lab.tasks.tokens.preparing import prepare
from tests.support import ROOT
from tests.support.train_process import (
    TINY,
    TrainProcess,
    complete,
    interrupt,
    outcome,
    own_compiled,
    whole,
)

LIMIT = 10.0  # seconds from a signal to the end
RUN_SECONDS = 21.0  # of a whole run, about: random kills come within them
# Before, in and after each part of a save; in compiling, training, evaluating, and in the report.
KILLED_AT = (
    "compiling", "compiling+0.4", "compiling:2+0.8", "training", "training:3", "training:7",
    "saving", "saving:2+0.01", "saving:4+0.03", "saving:5+0.02", "writing", "writing:2+0.005",
    "writing:3+0.015", "writing:6+0.03", "committed", "committed:3", "committed:5", "sealed",
    "sealed:2", "sealed:4", "sealed:8", "deleting", "deleting:2", "deleting:3", "deleting:4",
    "evaluating", "evaluating:2", "evaluating:3", "finished", "finished+0.3",
)  # fmt: skip
AT = ("compiling+0.3", "training:2", "saving:2", "writing:3+0.01", "committed:2", "evaluating:2")
LONG = ("--config.train.steps=60000", "--config.checkpoint.seconds=3600.0")
SMALL = (
    *TINY, "--config.encoding.name=nope", "--config.seeds=1", "--config.train.steps=12",
    "--config.eval.lengths=(8,)",
)  # fmt: skip
TOKENS = (
    "--config=configs/rope_extrap.py:quick", "--config.task.stretch=64",
    "--config.model.width=16", "--config.model.heads=2", "--config.model.layers=1",
    "--config.train.steps=12", "--config.train.chunk=3", "--config.train.batch=4",
    "--config.train.length=16", "--config.train.min_length=16", "--config.train.warmup=2",
    "--config.eval.lengths=(16, 32)", "--config.seeds=2", "--config.checkpoint.seconds=0.0",
)  # fmt: skip
RANDOM = random.Random(0)
KILLS = [*KILLED_AT, *(RANDOM.uniform(0.1, 1.0) * RUN_SECONDS for _ in range(20))]
SIGNALS = [(at, name) for at in AT for name in STOP_SIGNALS]
SIGNALS += [(RANDOM.uniform(0.0, 4.0), name)
            for name in itertools.islice(itertools.cycle(STOP_SIGNALS), 8)]  # fmt: skip


def run(workdir, failpoint="", **how):
    return TrainProcess(workdir, config=SMALL, failpoint=failpoint, **how).wait()


@pytest.mark.thorough
def test_a_run_killed_and_interrupted_ends_in_the_same_bits(tmp_path):
    """SIGKILL between the commit of a checkpoint and its seal, then SIGTERM in training."""
    assert run(tmp_path / "whole").status == 0
    wanted = outcome(tmp_path / "whole")
    assert run(tmp_path / "run", "committed:1").status == -signal.SIGKILL
    asked = run(tmp_path / "run", "training@TERM")
    assert (asked.status, asked.traceback) == (75, False), asked.err
    assert "checkpoints/nope/6: not used: the save did not finish" in asked.err
    last = run(tmp_path / "run")
    assert (last.status, last.err) == (0, ""), last.err
    assert "goes on from nope, step 6 of 12" in last.out
    assert outcome(tmp_path / "run") == wanted
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"value": ', '"value": 1', 1))
    assert outcome(tmp_path / "run") != wanted, "control"


OPTIMIZERS = {
    "muon": ("--config.train.optimizer.name=muon",),
    "wsd": ("--config.train.schedule.name=wsd", "--config.checkpoint.at=(6,)"),
    "adafactor": ("--config.train.optimizer.name=adafactor",),
    "average": ("--config.train.average=4",),
}


@pytest.mark.thorough
@pytest.mark.parametrize("flags", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_other_optimizers_schedules_and_averages_end_in_the_same_bits(tmp_path, flags):
    """Killed where the state of step 6 is on disk; adamw is in the test above."""
    config = (*SMALL, *flags)
    wanted = whole(TrainProcess(tmp_path / "whole", config=config))
    killed = TrainProcess(tmp_path / "run", config=config, failpoint="sealed").wait()
    assert killed.status == -signal.SIGKILL
    last = TrainProcess(tmp_path / "run", config=config)
    assert not complete(wanted, last)
    assert "goes on from nope, step 6 of 12" in last.output()
    assert wanted != whole(TrainProcess(tmp_path / "control", config=SMALL)), "control"


@pytest.mark.thorough
def test_a_run_on_tokens_that_is_killed_ends_in_the_same_bits(tmp_path):
    """Killed where the records of a chunk are on disk, and its state is not; then in a save."""
    prepare(documents.source(str(ROOT / "posenc_jax")), "bpe:300", tmp_path / "tokens")
    config = (*TOKENS, f"--config.task.name=tokens:{tmp_path}/tokens")

    def process(name, *flags, **how):
        return TrainProcess(tmp_path / name, *flags, config=config, **how)

    wanted = whole(process("whole"))
    for at in ("writing:3", "saving:2"):
        assert process("run", failpoint=at).wait().status == -signal.SIGKILL
    assert not complete(wanted, process("run"))
    other = complete(wanted, process("other", "--config.first_seed=1"))
    assert any(part.startswith("rope") for part in other), "control: another order of windows"


@pytest.mark.thorough
def test_a_run_whose_disk_is_full_ends_in_one_line_and_goes_on_in_the_same_bits(tmp_path):
    assert run(tmp_path / "whole").status == 0
    largest = max(path.stat().st_size for path in tmp_path.glob("whole/checkpoints/**/*")
                  if path.is_file())  # fmt: skip
    # Files of checkpoints do not fit; records, which are smaller, do.
    full = run(tmp_path / "run", file_bytes=largest - 1)
    assert (full.status, full.traceback) == (1, False), full.err
    assert "too large" in full.err.splitlines()[-1], full.err
    assert run(tmp_path / "run").status == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


@pytest.mark.parametrize(
    ("at", "fresh"), [("training:2", False), ("compiling+1", True), (1.5, True)]
)
def test_a_run_that_may_be_killed_in_compiling_has_an_empty_cache(tmp_path, at, fresh):
    compiled = own_compiled(tmp_path / "run", at)
    assert compiled == (tmp_path / "run.compiled" if fresh else None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def wanted(folder):
    """The outcome of a run that nothing interrupts."""
    return whole(TrainProcess(folder / "whole"))


def ended_and_resumed(workdir, at, name, wanted, without=""):
    """Returns the seconds from the signal to the end, and how the resumed run differs."""
    compiled = own_compiled(workdir, at)
    seconds, wrong = interrupt(workdir, at, name, compiled=compiled)
    return seconds, wrong or complete(
        wanted, TrainProcess(workdir, without=without, compiled=compiled)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(len(KILLS)), ids=map(str, KILLS))
def test_a_run_that_was_killed_anywhere_ends_in_the_same_bits(folder, wanted, number):
    at = KILLS[number]
    _, wrong = ended_and_resumed(folder / f"kill{number}", at, signal.SIGKILL, wanted)
    assert not wrong


@pytest.mark.thorough
@pytest.mark.parametrize("protection", ["rollback", "optimizer"])
def test_the_control_of_kills_differs_without_a_protection(folder, wanted, protection):
    workdir = folder / f"without-{protection}"
    _, wrong = ended_and_resumed(workdir, "training:3", signal.SIGKILL, wanted, protection)
    assert wrong


@pytest.mark.thorough
@pytest.mark.parametrize(("at", "name"), SIGNALS)
def test_a_run_that_is_told_to_stop_leaves_in_time_and_ends_in_the_same_bits(
    folder, wanted, at, name
):
    seconds, wrong = ended_and_resumed(folder / f"{name.name}-{at}", at, name, wanted)
    assert not wrong
    assert seconds < LIMIT


@pytest.mark.thorough
@pytest.mark.parametrize(("without", "saves"), [("", True), ("default_signals", False)])
def test_a_run_that_is_told_to_stop_saves_what_it_trained(folder, without, saves):
    """The second case is the control: with SIGTERM's default effect no checkpoint is left."""
    workdir = folder / f"long{without}"
    process = TrainProcess(workdir, *LONG, without=without)
    process.wait_until(lambda: "step" in process.output())
    assert process.process.poll() is None, process.output()
    process.process.send_signal(signal.SIGTERM)
    process.wait()
    assert bool(list(workdir.glob("checkpoints/*/*/sha256.json"))) == saves
