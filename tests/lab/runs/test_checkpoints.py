"""Checkpoints: restored to the bit or not at all; a damaged one is named and the next one used."""

import shutil
import sys
import threading
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from posenc_jax import make
from posenc_jax.encoding import Dims
from posenc_jax.lab.hosts.exit_status import Diverged, NotWritten, Refused
from posenc_jax.lab.runs import checkpoints
from posenc_jax.lab.runs.checkpoints import Checkpoints, fill, named_leaves
from posenc_jax.lab.training.step import State
from tests.support import damaged_files


class Tree(NamedTuple):
    params: dict
    step: jax.Array


def tree(scale=1.0):
    params = {
        "encoding": make("alibi").init(jax.random.key(0), Dims(16, 2, 8)),
        "kernel": scale * jnp.arange(4096.0).reshape(64, 64),
        "small": jnp.array([1.5, -0.25], jnp.bfloat16),
        "nothing": jnp.zeros((0, 3)),
    }
    return Tree(params, jnp.array([3, 3], jnp.int32))


def saved(folder, steps=(1, 2)):
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, tree(step), {"mark": step})
    checkpoints.wait()
    return checkpoints


def test_every_leaf_comes_back_to_the_bit_with_its_note(tmp_path):
    actual = next(saved(tmp_path).newest())
    assert (actual.step, actual.note) == (2, {"mark": 2})
    back = fill(tree(), actual.leaves)
    assert jax.tree.structure(back) == jax.tree.structure(tree())
    wanted = named_leaves(tree(2))
    for name, a in named_leaves(back).items():
        assert a.dtype == wanted[name].dtype, name
        np.testing.assert_array_equal(a, wanted[name])


def test_arrays_donated_after_a_save_are_saved_unchanged(tmp_path):
    checkpoints, state = Checkpoints(tmp_path), tree()
    bump = jax.jit(lambda t: jax.tree.map(lambda x: x + jnp.ones((), x.dtype), t), donate_argnums=0)
    checkpoints.save(1, state, {})
    bump(state)
    checkpoints.wait()
    np.testing.assert_array_equal(
        next(checkpoints.newest()).leaves[".params['kernel']"], tree().params["kernel"]
    )


def test_old_checkpoints_are_deleted_and_newer_ones_on_request(tmp_path):
    checkpoints = saved(tmp_path, steps=(1, 2, 3))
    assert [actual.step for actual in checkpoints.newest()] == [3, 2]
    checkpoints.delete_after(2)
    assert [actual.step for actual in checkpoints.newest()] == [2]


def test_items_are_apart_and_one_is_read_without_the_rest(tmp_path):
    kept, state = Checkpoints(tmp_path), State(tree().params, {"mu": jnp.ones(2)}, *tree().step)
    kept.save(1, state, {"mark": 1})
    kept.wait()
    items = {path.name for path in (tmp_path / "1").iterdir() if path.is_dir()}
    assert items == {"weights", "optimizer", "progress", "note"}
    shutil.rmtree(tmp_path / "1" / "optimizer")
    weights = kept.read(1, ["weights"])
    assert {checkpoints.item_of(name) for name in weights.leaves} == {"weights"}
    np.testing.assert_array_equal(weights.leaves[".params['kernel']"], state.params["kernel"])
    assert kept.read(1, ["average"]).leaves == {}
    assert [*kept.newest()] == [], "control: the whole is damaged"


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path):
    """One item had all arrays."""
    leaves = {n: np.array(leaf) for n, leaf in named_leaves(tree()).items() if leaf.size}
    args = ocp.args.Composite(state=ocp.args.StandardSave(leaves), note=ocp.args.JsonSave({}))
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=args)
    checkpoints.write_manifest(tmp_path / "1")
    kept = Checkpoints(tmp_path)
    assert not (tmp_path / "1" / "weights").exists()
    assert kept.read(1, ["progress"]).leaves.keys() == {".step"}
    for a, b in zip(*map(jax.tree.leaves, (kept.restore(1, tree(7.0)), tree())), strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_to_keep_are_never_deleted(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1, at=(2,))
    for step in (1, 2, 3, 4):
        checkpoints.save(step, tree(step), {})
    checkpoints.wait()
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [2, 4]


@pytest.mark.thorough
def test_no_damage_to_a_file_goes_unseen(tmp_path):
    saved(tmp_path / "kept")
    restored = list(damaged_files.restored(tmp_path / "kept", tmp_path / "scratch"))
    actual = [each.outcome for each in restored]
    assert "wrong" not in actual
    assert actual.count("fell back") >= 4 * 8
    assert damaged_files.unseen(tmp_path / "kept", tmp_path / "scratch") > 0, "control"


def test_a_save_or_removal_that_was_cut_short_is_passed_over(tmp_path, capsys):
    kept = saved(tmp_path)
    (tmp_path / "2" / checkpoints.MANIFEST).unlink()
    (tmp_path / "3.orbax-checkpoint-tmp").mkdir()
    assert next(kept.newest()).step == 1
    assert capsys.readouterr().err == f"{tmp_path / '2'}: not used: the save did not finish\n"
    kept.delete_after(1)
    kept.save(2, tree(), {})
    kept.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_failed_save_surfaces_at_the_next_and_at_the_end(tmp_path, monkeypatch):
    def full(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_manifest", full)
    kept = Checkpoints(tmp_path)
    kept.save(1, tree(), {})
    with pytest.raises(NotWritten, match=r"^[^\n]*No space left on device$"):
        kept.save(2, tree(), {})
    kept.save(3, tree(), {})
    with pytest.raises(NotWritten, match="No space left on device"):
        kept.wait()
    kept.wait()  # said once


def test_what_is_not_finite_is_never_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(Diverged, match=r"^step 7: \.params\['kernel'\] is not finite"):
        checkpoints.save(7, tree(jnp.inf), {})
    checkpoints.wait()
    assert list(checkpoints.newest()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: {**p, "kernel": p["kernel"][:8]}, r"\.params\['kernel'\] has shape \(64, 64\)"),
        (lambda p: {**p, "kernel": p["kernel"].astype(jnp.float16)}, r"'kernel'\] has dtype fl"),
        (lambda p: {**p, "more": p["small"]}, r"\.params\['more'\] is missing"),
        (lambda p: {"kernel": p["kernel"]}, r"is not in this model"),
    ],
)
def test_a_leaf_that_does_not_fit_is_refused_by_name(tmp_path, change, said):
    actual = next(saved(tmp_path, steps=(1,)).newest())
    other = tree()._replace(params=change(tree().params))
    with pytest.raises(Refused, match=rf"^checkpoint: [^\n]*{said}[^\n]*$"):
        fill(other, actual.leaves)


_unpickled: list[str] = []


def _listen(event, arguments):
    if event == "pickle.find_class" and threading.current_thread() is threading.main_thread():
        _unpickled.append(str(arguments))


def test_nothing_is_unpickled(tmp_path):
    import pickle

    sys.addaudithook(_listen)
    saved(tmp_path)
    assert next(Checkpoints(tmp_path).newest()).step == 2
    assert _unpickled == []
    pickle.loads(pickle.dumps(Tree({}, 0)))
    assert _unpickled, "control"
