"""Saves and restores checkpoints whose every byte is verified by a hash.

    FOLDER/STEP/             one atomic commit by Orbax: items of arrays by name, and a note in JSON
    FOLDER/STEP/sha256.json  the hash of every file in it, written last; a step without it is
                             incomplete

The items are `ITEMS`, so that weights can be read without the rest. Each process writes the parts
of arrays that its devices hold, and hashes its share of the files. A state is restored onto any
mesh and number of processes. A tree is saved as its leaves by name, so its nodes may be of any
type; leaves of size 0 are not saved. Nothing is unpickled.

Runs of earlier versions have one item, `state`, with the same names. They are read too.
"""

import hashlib
import logging
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from posenc_jax.lab.hosts import failpoints, processes
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Diverged, NotWritten, Refused, first_line
from posenc_jax.lab.hosts.files import read_object, write_json

MANIFEST, SHARE = "sha256.json", "sha256.share.json"
# Item -> how the names of its leaves begin; `OTHERS` has all other leaves, `EARLIER` had all.
ITEMS = {"weights": ".params", "optimizer": ".opt", "average": ".average"}
OTHERS, EARLIER, NOTE = "progress", "state", "note"
BARRIER_MS = 300_000

# Orbax also logs each error that it raises, with a traceback; here an error is one line.
logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)


class Checkpoint(NamedTuple):
    """A verified checkpoint: leaves by name, and the note that was saved with them."""

    step: int
    leaves: dict[str, np.ndarray]
    note: dict[str, Any]


class Checkpoints:
    """The newest `keep` checkpoints of one tree in a folder, and those of the steps `at`.

    `save` returns when the values are copied, and a thread writes them. If that fails, the next
    `save` or `wait` raises the error. All processes must call `save` and `wait`.
    """

    def __init__(self, folder: Path, keep: int = 2, at: Collection[int] = ()):
        self._folder, self._keep, self._at = folder, keep, at
        self._worker = ThreadPoolExecutor(1, "checkpoints")
        self._saving: Future | None = None

    def newest(self) -> Iterator[Checkpoint]:
        """Yields the verified checkpoints, newest first, and prints a line to standard error for
        each one that fails.
        """
        for step in self.verified():
            try:
                yield self.read(step)
            except Exception as error:  # Orbax and TensorStore raise many kinds
                self._not_used(step, error)

    def verified(self) -> Iterator[int]:
        """Yields the steps whose files are as they were written, newest first, and prints a line
        to standard error for each other one.
        """
        for step in sorted(self._steps(), reverse=True):
            try:
                verify(self._folder / str(step))
                yield step
            except (OSError, ValueError) as error:
                self._not_used(step, error)

    def _not_used(self, step: int, error: Exception) -> None:
        line = f"{self._folder / str(step)}: not used: {first_line(error)}"
        say(line, sys.stderr)

    def save(self, step: int, tree: Any, note: Mapping[str, Any]) -> None:
        """Copies the tree, sharded or not, and starts to write it. All processes must call it.

        Raises:
          NotWritten: the save before this one failed.
          Diverged: a leaf is not finite; nothing is written.
        """
        self.wait()
        leaves = {name: leaf for name, leaf in named_leaves(tree).items() if leaf.size}
        copies = _on_hosts(leaves) if processes.is_multiprocess() else _whole(leaves)
        self._check_finite(step, leaves, copies)
        self._saving = self._worker.submit(self._commit, step, copies, dict(note))
        failpoints.reach("saving")

    def _check_finite(self, step: int, leaves: Mapping[str, Any], copies: Mapping[str, Any]):
        inexact = {n: x for n, x in leaves.items() if jnp.issubdtype(x.dtype, jnp.inexact)}
        if processes.is_multiprocess() or jax.default_backend() != "cpu":
            finite = processes.fetch(self._are_finite(inexact))
        else:  # the copies are where the devices are, and need no program
            finite = {name: np.isfinite(copies[name]).all() for name in inexact}
        for name, is_finite in finite.items():
            if not is_finite:
                raise Diverged(f"step {step}: {name} is not finite; no checkpoint is made of it")

    @cached_property
    def _are_finite(self) -> Any:
        """The jitted function (arrays by name) -> whether all numbers of each are finite."""
        return jit_quick(lambda leaves: jax.tree.map(lambda x: jnp.isfinite(x).all(), leaves))

    def wait(self) -> None:
        """Returns when the last save is on disk.

        Raises:
          NotWritten: the last save failed.
        """
        saving, self._saving = self._saving, None
        if saving is not None:
            try:
                saving.result()
            except Exception as error:
                reason = f"the last checkpoint was not written: {first_line(error)}"
                raise NotWritten(f"{self._folder}: {reason}") from error

    def delete_after(self, step: int) -> None:
        """Deletes checkpoints newer than `step`."""
        if processes.is_first():
            for newer in [other for other in self._steps() if other > step]:
                self._remove(newer)

    def read(self, step: int, items: Collection[str] = ()) -> Checkpoint:
        """Reads the whole arrays of the checkpoint of one step, without verifying it.

        items: those to read; (): all.
        """
        names = self._items(step)
        wanted = [name for name in names if not items or name in (*items, EARLIER)]
        with self._manager(write=False) as manager:
            args = {item: self._as_numpy(step, item) for item in wanted}
            args |= {NOTE: ocp.args.JsonRestore()}
            restored = manager.restore(step, args=ocp.args.Composite(**args))
        leaves = {name: leaf for part in wanted for name, leaf in restored[part].items()}
        if items:
            leaves = {name: leaf for name, leaf in leaves.items() if item_of(name) in items}
        return Checkpoint(step, leaves, dict(restored[NOTE]))

    def note(self, step: int) -> dict[str, Any]:
        """The note of the checkpoint of one step."""
        with self._manager(write=False) as manager:
            args = ocp.args.Composite(**{NOTE: ocp.args.JsonRestore()})
            return dict(manager.restore(step, args=args)[NOTE])

    def restore(self, step: int, like: Any) -> Any:
        """The tree of one step, each array as `like` has it: its shape, dtype and devices, of which
        a process reads what its own devices hold. All processes must call it.

        Raises:
          Refused: as `fill`.
        """
        if not processes.is_multiprocess() or EARLIER in self._items(step):
            return fill(like, self.read(step).leaves)
        wanted = named_leaves(like)
        stored: dict[str, Any] = {n: leaf for n, leaf in wanted.items() if not leaf.size}
        for item in self._items(step):
            stored |= self._shapes(step, item)
        check_fits(wanted, stored)
        shaped = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
        parts = _by_item({name: shaped(x) for name, x in wanted.items() if x.size})
        with self._manager(write=False) as manager:
            args = {item: ocp.args.StandardRestore(part) for item, part in parts.items()}
            restored = manager.restore(step, args=ocp.args.Composite(**args))
        arrays = {name: leaf for item in parts for name, leaf in restored[item].items()}
        leaves = [arrays.get(name, leaf) for name, leaf in wanted.items()]  # of size 0: not saved
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def _as_numpy(self, step: int, item: str) -> Any:
        """The arguments that read an item's whole arrays, whatever devices wrote them."""
        shape_of = lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
        shapes = {name: shape_of(leaf) for name, leaf in self._shapes(step, item).items()}
        return ocp.args.StandardRestore(shapes)

    def _shapes(self, step: int, item: str) -> Mapping[str, Any]:
        """The shape and the dtype of each array of an item."""
        folder: Any = (self._folder / str(step) / item).absolute()
        return ocp.StandardCheckpointHandler().metadata(folder).tree

    def _commit(self, step: int, leaves: dict[str, Any], note: dict) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        failpoints.reach("writing")
        args = {item: ocp.args.StandardSave(part) for item, part in _by_item(leaves).items()}
        args |= {NOTE: ocp.args.JsonSave(note)}
        with self._manager(write=True) as manager:
            manager.save(step, args=ocp.args.Composite(**args))
        failpoints.reach("committed")
        write_manifest(self._folder / str(step))
        failpoints.reach("sealed")
        if processes.is_first():
            for old in sorted(self._steps())[: -self._keep]:
                if old not in self._at:
                    self._remove(old)

    def _manager(self, write: bool) -> ocp.CheckpointManager:
        """Orbax's manager: of all processes, to write, or of this one.

        It waits for the other processes without a computation of the devices, which would have to
        be in the same order as those of the training in all processes, only if they are named.
        """
        alone = jax.process_index()
        active = {*range(jax.process_count())} if write else {alone}
        process_options = ocp.options.MultiprocessingOptions(
            primary_host=0 if write else alone,
            active_processes=active,
            barrier_sync_key_prefix="all" if write else str(alone),
        )
        options = ocp.CheckpointManagerOptions(
            create=False,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=write,
            multiprocessing_options=process_options,
        )
        return ocp.CheckpointManager(self._folder.absolute(), options=options)

    def _items(self, step: int) -> list[str]:
        """The items of arrays that a checkpoint has."""
        items = (*ITEMS, OTHERS, EARLIER)
        return [name for name in items if (self._folder / str(step) / name).is_dir()]

    def _steps(self) -> list[int]:
        return [int(path.name) for path in self._folder.glob("*") if path.name.isdecimal()]

    def _remove(self, step: int) -> None:
        """Deletes a checkpoint, its manifest first, so that a deletion cut short leaves an
        incomplete checkpoint and not a damaged one.
        """
        (self._folder / str(step) / MANIFEST).unlink(missing_ok=True)
        failpoints.reach("deleting")
        shutil.rmtree(self._folder / str(step))


def item_of(name: str) -> str:
    """The item that holds a leaf of this name."""
    begins = (item for item, prefix in ITEMS.items() if name.startswith(prefix))
    return next(begins, OTHERS)


def _by_item(leaves: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}
    for name, leaf in leaves.items():
        parts.setdefault(item_of(name), {})[name] = leaf
    return parts


def _whole(leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Copies of the whole arrays, which this process has."""
    return {name: np.array(leaf) for name, leaf in jax.device_get(leaves).items()}


def _on_hosts(leaves: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Copies of the arrays in the memory of the hosts, each process with what its devices hold."""
    copy = lambda x: jax.device_put(x, x.sharding.with_memory_kind("pinned_host"))
    return jax.block_until_ready({name: copy(leaf) for name, leaf in leaves.items()})


def named_leaves(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a tree by names such as ".params['encoding']['slope']"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def fill(tree: Any, leaves: Mapping[str, np.ndarray]) -> Any:
    """Returns the tree with a checkpoint's leaves, on the devices where its own leaves are.

    Raises:
      Refused: names the first leaf that is missing, unknown, or of another shape or dtype.
    """
    wanted = named_leaves(tree)
    empty = {k: np.zeros(leaf.shape, leaf.dtype) for k, leaf in wanted.items() if not leaf.size}
    leaves = empty | dict(leaves)
    check_fits(wanted, leaves)
    placed = [processes.place(leaves[name], leaf.sharding) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(tree), placed)


def check_fits(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Raises Refused, as `fill`, if stored arrays are not those that are wanted."""
    for name in {**stored, **wanted}:
        if name not in wanted:
            raise Refused(f"checkpoint: {name} is not in this model")
        if name not in stored:
            raise Refused(f"checkpoint: {name} is missing")
        for what in ("shape", "dtype"):
            has, needs = getattr(stored[name], what), getattr(wanted[name], what)
            if has != needs:
                raise Refused(f"checkpoint: {name} has {what} {has}; the model has {needs}")


def write_manifest(folder: Path) -> None:
    """Writes the SHA-256 of every file in a checkpoint's folder, which completes the checkpoint.

    Each process hashes its share of the files; all must call it.
    """
    count, index = jax.process_count(), jax.process_index()
    hashes = _hashes(folder, _files(folder)[index::count])
    if count > 1:
        wait = ocp.multihost.get_barrier_sync_fn(processes={*range(count)})
        wait(key=f"{folder} committed", timeout_ms=BARRIER_MS)  # no share is a file of the next
        write_json(folder / f"{index}.{SHARE}", hashes)
        wait(key=f"{folder} hashed", timeout_ms=BARRIER_MS)
        shares = [folder / f"{n}.{SHARE}" for n in range(count)]
        if index == 0:
            hashes = {name: value for share in shares for name, value in read_object(share).items()}
            for share in shares:
                share.unlink()
    if index == 0:
        write_json(folder / MANIFEST, dict(sorted(hashes.items())))


def verify(folder: Path) -> None:
    """Raises ValueError if a checkpoint's folder is incomplete, or a file is not as written."""
    try:
        wanted = read_object(folder / MANIFEST)
    except FileNotFoundError:
        raise ValueError("the save did not finish") from None
    except ValueError:
        raise ValueError(f"{MANIFEST} is damaged") from None
    hashes = _hashes(folder, _files(folder))
    for name in sorted({*wanted, *hashes}):
        if name not in hashes:
            raise ValueError(f"{name} is missing")
        if wanted.get(name) != hashes[name]:
            raise ValueError(f"{name} is not what was written")


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(MANIFEST) and SHARE not in path.name
    )


def _hashes(folder: Path, files: list[Path]) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
