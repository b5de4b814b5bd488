"""Trainings that start from another run: continued, extended, with another task or encoding."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import experiments
from configs import common
from experiments.compare import start
from posenc_jax import lab
from posenc_jax.lab import runs
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.runs.checkpoints import Checkpoints
from posenc_jax.lab.runs.source import steps as checkpointed_steps
from posenc_jax.lab.tasks.tokens import documents, preparing
from posenc_jax.options import FieldError
from tests.experiments.compare.test_loading import killed_at, tiny, values

WSD = {"name": "wsd", "fall": 0.5}


def config_of(steps=4, start=None, **changes) -> dict[str, Any]:
    """A run of so many steps, of which those up to step 2 are the same for 4 and 8 steps."""
    config = tiny()
    config.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    whole = config.to_dict()
    whole["train"] |= {"steps": steps, "schedule": whole["train"]["schedule"] | WSD}
    return whole | ({"start": start} if start else {})


def run(folder: Path, *given, **changes) -> Path:
    experiments.prepare(config_of(*given, **changes), str(folder))()
    return folder


def leaves(folder: Path, step: int) -> dict[str, np.ndarray]:
    (trained,) = (folder / "checkpoints").iterdir()
    return Checkpoints(trained).read(step).leaves


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "source")


@pytest.mark.thorough
def test_the_checkpoint_before_a_fall_is_kept_and_of_a_cosine_the_last_alone(tmp_path):
    def steps(schedule):
        config, folder = config_of(8) | {"checkpoint": {}}, tmp_path / schedule["name"]
        config["train"]["schedule"] = schedule
        experiments.prepare(config, str(folder))()
        return checkpointed_steps(folder, "rope")

    assert steps(WSD) == [4, 8]
    assert steps({"name": "cosine"}) == [8], "control"


@pytest.mark.thorough
def test_an_extended_wsd_is_one_long_run(source, tmp_path, monkeypatch):
    """Also if it is killed and the source is deleted then."""
    copied = shutil.copytree(source, tmp_path / "copied")
    long = run(tmp_path / "long", 8)
    seeds_and_start = 8, {"run": str(copied), "step": 2}
    config = config_of(*seeds_and_start, checkpoint__seconds=0.0)
    killed_at(monkeypatch, "training", 2, config, tmp_path / "extended")
    shutil.rmtree(copied)
    extended = run(tmp_path / "extended", *seeds_and_start, checkpoint__seconds=0.0)
    wanted, actual = leaves(long, 8), leaves(extended, 8)
    assert wanted.keys() == actual.keys()
    for name, leaf in wanted.items():
        np.testing.assert_array_equal(leaf, actual[name], err_msg=name)
    assert values(runs.read(extended).records) == values(runs.read(long).records)
    trained = [r["step"] for r in runs.read(extended).records if r["metric"] == "grad_norm"]
    assert sorted({*trained}) == [4, 6, 8], "the first steps are not repeated"
    begun = json.loads((extended / "start.json").read_text())["rope"]
    assert (begun["what"], begun["step"], begun["stage"]) == ("state", 2, "rope")
    assert begun["id"] == json.loads((source / "progress.json").read_text())["id"]
    assert len(begun["sha256"]) == 64
    gap = max(abs(leaf - actual[name]).max() for name, leaf in leaves(source, 4).items())
    assert gap > 1e-3, "control"


@pytest.mark.thorough
def test_weights_start_a_new_training_of_another_encoding(source, tmp_path, capsys):
    """Learned tables are drawn anew; all other weights are those of the source."""
    start = {"run": str(source), "what": "weights"}
    changes = {"encoding__name": "learned", "encoding__length": 16, "train__lr": 1e-30, "seeds": 1}
    fresh = run(tmp_path / "new", 2, start, **changes, first_seed=1)
    said = capsys.readouterr().out
    assert "rope: " not in said
    assert f"learned: starts from {source}, rope at step 4" in said
    assert "learned: ['encoding']['table'] drawn anew" in said
    assert "learned: options of the encoding are {'length': 16}, of the source {}" in said
    before, after = leaves(source, 4), leaves(fresh, 2)
    name = ".params['embed']"
    np.testing.assert_allclose(after[name][0], before[name][1], atol=1e-6)
    assert abs(after[name][0] - before[name][0]).max() > 1e-3, "control: the other seed"
    assert after[".step"].tolist() == [2]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("start", "changes", "said"),
    [
        ({"run": "nowhere"}, {}, r"config.start.run: nowhere: no such folder"),
        ({"run": "{here}"}, {}, r"config.start.run: \S+config.json: No such file or directory"),
        ({"run": "{run}", "step": 3}, {}, r"config.start.step: 3: .* choices: 2, 4"),
        ({"run": "{run}", "encoding": "alibi"}, {}, r"config.start.encoding: .* choices: rope"),
        ({"step": 3}, {}, r"config.start.step: has no effect without start.run"),
        ({"run": "{run}", "what": "all"}, {}, r"config.start.what: 'all' is wrong"),
        ({"run": "{run}"}, {"seeds": 3}, r"config.seeds: \S+ has no seed 2, but 0 to 1"),
        ({"run": "{run}"}, {"train__lr": 1e-4}, r"config.train.lr: 0.0001, but \S+ was trained"),
        ({"run": "{run}"}, {"encoding__name": "alibi"}, r"config.encoding.name: alibi is not rope"),
        ({"run": "{run}"}, {"steps": 2}, r"config.train.steps: 2 is less than the 4"),
        ({"run": "{run}"}, {"steps": 8}, r"config.train.schedule: wsd over 8 .* start.step=2"),
        ({"run": "{run}"}, {"steps": 8, "cosine": True}, r"config.train.schedule: cosine over 8 "),
        ({"run": "{workdir}"}, {}, r"config.start.run: \S+ is the folder of this run"),
        ({"run": "{huggingface}"}, {}, r"config.start.what: 'state': a model of Hugging Face"),
        (
            {"run": "{huggingface}", "what": "weights", "step": 2}, {},
            r"config.start.step: 2: a model of Hugging Face has weights alone",
        ),
        (
            {"run": "{run}", "what": "weights"}, {"encoding__name": "yarn"},
            r"config.encoding.length: 2048 for yarn, since none .* with 10: state one",
        ),
        (
            {"run": "{huggingface}", "what": "weights"}, {"encoding__name": "yarn"},
            r"config.encoding.length: 2048 for yarn, since none .* with 128: state one",
        ),
        (
            {"run": "{huggingface}", "what": "weights"}, {"model__width": 48},
            r"config.model.width: 48; \S+ has 64: leave it out",
        ),
    ],
)  # fmt: skip
def test_a_start_that_cannot_be_is_one_line(source, tmp_path, start, changes, said):
    (tmp_path / "work").mkdir()
    names = {
        "run": source,
        "here": tmp_path,
        "workdir": tmp_path / "work",
        "huggingface": "experiments/pretrained/model",
    }
    start = {k: v.format_map(names) if isinstance(v, str) else v for k, v in start.items()}
    cosine, steps = changes.pop("cosine", False), changes.pop("steps", 4)
    config = config_of(steps, start, **changes)
    if start.get("run") == names["huggingface"]:
        config["model"] = {"width": changes.get("model__width", 128)}
    if cosine:
        config["train"]["schedule"] = {"name": "cosine"}
    with pytest.raises(FieldError, match=rf"^{said}") as refused:
        experiments.prepare(config, str(tmp_path / "work"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model__width": 16},
            r"config.model.width: 16, but the weights of \S+ were trained with 8: s",
        ),
        (
            {"model__layers": 2},
            r"config.model.layers: 2, but the weights of \S+ were trained with 1",
        ),
        (
            {"model__gated": True},
            r"config.model.gated: True, but the weights of \S+ were trained w",
        ),
        (
            {"task__alphabet": 5},
            r"config.task.name: 'copy' has 10 symbols; the weights of \S+ know 9",
        ),
        (
            {"train__undecayed": ("embedd",)},
            r"config.train.undecayed: no weights are under 'embedd'",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_a_folder_is_made(
    source, tmp_path, changes, said
):
    start = {"run": str(source), "what": "weights"}
    with pytest.raises(FieldError, match=f"^{said}"):
        experiments.prepare(config_of(4, start, **changes), str(tmp_path / "work"))
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model__activation": "relu", "model__heads": 2, "train__undecayed": ("embed",)},
        {"task__name": "reverse"},
        {"task__name": "stdlib", "task__alphabet": None},  # its symbols are known when it is read
    ],
)
def test_weights_that_fit_are_accepted(source, tmp_path, changes):
    config = config_of(4, {"run": str(source), "what": "weights"}, **changes)
    config["task"] = {k: v for k, v in config["task"].items() if v is not None}
    assert callable(experiments.prepare(config, str(tmp_path / "work")))


def test_a_cosine_is_told_that_it_never_goes_on_and_not_from_where(source, monkeypatch):
    """Its rates depend on the number of steps after the warm-up, those of wsd in its fall."""

    def reason(schedule):
        config = lambda steps: experiments.check(
            config_of(steps) | {"train": config_of(steps)["train"] | {"schedule": schedule}}
        )
        checkpoint = start.find(schema.StartConfig(run=str(source)), "rope")
        with pytest.raises(FieldError) as refused:
            start._check_goes_on(config(8), config(4), "rope", checkpoint)
        return str(refused.value)

    never = "cosine over 8 steps has other rates right after the warm-up than cosine over 4, which"
    assert "it goes on from step 3 or before, start.step=2; with" in reason(WSD), "control"
    monkeypatch.setattr(start.source, "steps", lambda run, stage: [4])
    said = reason({"name": "cosine"})
    assert said.startswith(f"train.schedule: {never} {source} was trained with, so that never goes")
    assert "goes on from" not in said
    assert "it goes on from step 3 or before, a step kept by checkpoint.at" in reason(WSD)


@pytest.mark.thorough
def test_a_base_that_nobody_stated_is_not_put_on_weights_of_another(source, tmp_path):
    """Of runs and of models of Hugging Face; a stated one is taken, and one that is equal needs no
    words.
    """
    released = tmp_path / "released"
    shutil.copytree("experiments/pretrained/model", released)
    content = json.loads((released / "config.json").read_text())
    content |= {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    (released / "config.json").write_text(json.dumps(content))
    based = run(tmp_path / "based", 2, encoding__base=100.0)
    for folder, base in ((released, 5e5), (based, 100.0)):
        start = {"run": str(folder), "what": "weights"}
        config = config_of(2, start, encoding__name="alibi,pi")
        if folder == released:
            config |= {"model": {}, "task": {"name": "stdlib", "stretch": 4096}}
        said = rf"^config.encoding.base: 10000.0 for pi, since .* with {base}: state one"
        with pytest.raises(FieldError, match=said):
            experiments.prepare(config, str(tmp_path / "work"))
        for stated in (base, 10_000.0):
            config["encoding"]["base"] = stated
            experiments.prepare(config, str(tmp_path / "work"))
    config = config_of(2, {"run": str(source), "what": "weights"}, encoding__name="pi")
    experiments.prepare(config, str(tmp_path / "work"))  # both have 10,000


def test_a_checkpoint_is_kept_at_the_end_of_a_chunk_alone():
    config = config_of() | {"checkpoint": {"at": (3,)}}
    with pytest.raises(FieldError, match=r"^config.checkpoint.at: 3 is not the end of a chunk: mu"):
        experiments.check(config)


@pytest.mark.thorough
def test_a_model_of_hugging_face_is_trained_on(tmp_path, capsys):
    folder = Path("experiments/pretrained/model")
    config = config_of(2, {"run": str(folder), "what": "weights"}, train__lr=1e-30, seeds=1)
    config |= {"model": {}, "task": {"name": "stdlib", "stretch": 4096}}
    config["train"] |= {"length": 32, "min_length": 32}
    config["eval"] |= {"lengths": (32,), "examples": 4}
    config["encoding"]["base"] = 5e5
    experiments.prepare(config, str(tmp_path / "run"))()
    said = capsys.readouterr().out
    assert "rope: the encoding is rope(base=500000.0), of the source rope()" in said
    before, after = pretrained.load(folder).params, leaves(tmp_path / "run", 2)
    for path, leaf in jax.tree_util.tree_leaves_with_path(before):
        name = f".params{jax.tree_util.keystr(path)}"
        np.testing.assert_allclose(after[name][0], leaf, atol=1e-6, err_msg=name)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["model"]["width"] == pretrained.load(folder).config.width


def tokens(folder: Path, letters: str, name: str = "bpe:300") -> str:
    """The task of a text of random words of these letters, prepared as tokens of a tokenizer."""
    letter_NL, text = (
        np.random.default_rng(0).choice([*letters], (6000, 5)),
        folder.with_suffix(".txt"),
    )
    text.write_text(" ".join(map("".join, letter_NL)))
    preparing.prepare(documents.source(str(text)), name, folder)
    return f"tokens:{folder}"


@pytest.mark.thorough
def test_weights_are_not_read_with_another_tokenizer_of_as_many_ids(tmp_path):
    """Nor where the folder of tokens of the source holds those of another one by now."""
    trained, other = tokens(tmp_path / "a", "abcdefg"), tokens(tmp_path / "b", "hijklmn")
    fits = tokens(tmp_path / "c", "hijklmn", str(tmp_path / "a" / "tokenizer.json"))
    task = {"name": trained, "stretch": 64}
    source = tmp_path / "source"
    constant = {"schedule": {"name": "constant"}}
    config = config_of() | {"task": task}
    config["train"] |= constant
    experiments.prepare(config, str(source))()
    said = re.compile(
        rf"^config.task.name: 'tokens:{tmp_path}/\w' has the tokenizer \w{{8}}; the weights of "
        rf"{source} were trained with \w{{8}}: prepare its text with --tokenizer="
    )

    def refused(begin) -> str:
        with pytest.raises(Refused, match=said) as error:
            begin()
        return str(error.value).partition("--tokenizer=")[2]

    def go_on(what: str, name: str, steps: int):
        config = config_of(steps, {"run": str(source), "what": what})
        config |= {"task": {"name": name, "stretch": 64}}
        config["train"] |= constant
        experiments.prepare(config, str(tmp_path / f"{what}-{Path(name).name}"))()

    tokenizer = str(tmp_path / "a" / "tokenizer.json")
    assert refused(lambda: lab.evaluate(source, task={"name": other, "stretch": 64})) == tokenizer
    assert refused(lambda: go_on("weights", other, 4)) == tokenizer
    lab.evaluate(source, task={"name": fits, "stretch": 64})  # control
    go_on("weights", fits, 4)  # control

    lab.load(source)  # control
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    assert "whose SHA-256 begins with" in refused(lambda: go_on("state", trained, 6))
    assert "whose SHA-256 begins with" in refused(lambda: lab.load(source))


def test_a_run_is_not_resumed_on_tokens_of_another_tokenizer(tmp_path, monkeypatch):
    name = tokens(tmp_path / "a", "abcdefg")
    config = config_of() | {"task": {"name": name, "stretch": 64}}
    killed_at(monkeypatch, "training", 1, config, tmp_path / "run")
    killed_at(monkeypatch, "training", 1, config, tmp_path / "run")  # control: it is resumed
    tokens(tmp_path / "b", "hijklmn")
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    with pytest.raises(Refused, match=r"holds a run, with task.sha256 \w+, not "):
        experiments.prepare(config, str(tmp_path / "run"))()


@pytest.mark.thorough
def test_an_evaluation_on_other_labels_of_the_same_number_is_refused(tmp_path):
    def labels(*names: str) -> str:
        path = tmp_path / f"{'-'.join(names)}.tsv"
        path.write_text("".join(f"{names[n % 2]}\treview {n}\n" for n in range(60)))
        return f"labels:{path}"

    config = common.config(
        "classification",
        encoding={"name": "nope"},
        task={"name": labels("bad", "good")},
        model={"kind": "encoder", "width": 8, "heads": 1, "layers": 1, "mlp": 1},
        train={"length": 4, "min_length": 4, "batch": 2, "steps": 2, "chunk": 2, "warmup": 1},
        eval={"lengths": (4,), "examples": 4},
    ).to_dict()
    experiments.prepare(config, str(tmp_path / "run"))()
    said = r"has the labels false, true; the weights of \S+ were trained with bad, good: use a task"
    with pytest.raises(Refused, match=said):
        lab.evaluate(tmp_path / "run", task={"name": labels("true", "false")})
    lab.evaluate(tmp_path / "run", task={"name": labels("good", "bad")})  # control
    start = {"run": str(tmp_path / "run"), "what": "weights"}
    tuned = {**config, "start": start, "task": {"name": labels("no", "yes")}}
    experiments.prepare(tuned, str(tmp_path / "tuned"))()  # control: they are learned anew


def test_a_model_of_hugging_face_reads_tokens_of_its_own_tokenizer_alone(tmp_path):
    folder = shutil.copytree("experiments/pretrained/model", tmp_path / "model")
    config = config_of(2, {"run": str(folder), "what": "weights"}, seeds=1)
    config |= {"model": {}, "task": {"name": tokens(tmp_path / "a", "abcdefg"), "stretch": 64}}
    config["train"] |= {"length": 32, "min_length": 32}
    config["eval"] |= {"lengths": (32,), "examples": 4}
    config["encoding"]["base"] = 1e4
    with pytest.raises(Refused, match=rf"prepare its text with --tokenizer={folder}/tokenizer.js"):
        experiments.prepare(config, str(tmp_path / "run"))()


@pytest.mark.thorough
def test_other_data_under_the_same_name_end_a_training_and_are_told_by_an_evaluation(
    tmp_path, capsys
):
    path = tmp_path / "text.txt"
    write = lambda words: path.write_text(" ".join(f"{words} {n}" for n in range(2000)))
    task = {"name": f"file:{path}", "stretch": 64}
    write("these are")
    text = path.read_text()
    trained = run(tmp_path / "source", task=task)
    start = {"run": str(trained), "step": 2}
    longer = lambda name: run(tmp_path / name, 8, start, task=task)
    said = r"holds other data \(SHA-256 \w{8}\) than \S+ was trained on \(\w{8}\)"
    longer("longer")  # control
    lab.evaluate(trained, name="same")
    assert not re.search(said, capsys.readouterr().out), "control"

    write("others are")
    with pytest.raises(Refused, match=said):
        longer("longest")
    lab.evaluate(trained, name="other")
    assert re.search(said, capsys.readouterr().out)
    path.write_text(text)
    longer("again")
