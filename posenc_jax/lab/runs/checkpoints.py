"""Saves and restores checkpoints whose every byte is verified by a hash.

    FOLDER/STEP/             one atomic commit by Orbax: the arrays by name, and a note in JSON
    FOLDER/STEP/sha256.json  the hash of every file in it, written last; a step without it is
                             incomplete

A tree is saved as its leaves by name, so its nodes may be of any type; leaves of size 0 are not
saved. Nothing is unpickled.
"""

import hashlib
import logging
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from posenc_jax.lab.hosts import failpoints, processes
from posenc_jax.lab.hosts.exit_status import Diverged, NotWritten, Refused, first_line
from posenc_jax.lab.hosts.files import read_object, write_json

MANIFEST = "sha256.json"

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
    `save` or `wait` raises the error. With several processes the first one writes.
    """

    def __init__(self, folder: Path, keep: int = 2, at: Collection[int] = ()):
        self._folder, self._keep, self._at = folder, keep, at
        self._worker = ThreadPoolExecutor(1, "checkpoints")
        self._saving: Future | None = None

    def newest(self) -> Iterator[Checkpoint]:
        """Yields the verified checkpoints, newest first, and prints a line to standard error for
        each one that fails.
        """
        for step in sorted(self._steps(), reverse=True):
            folder = self._folder / str(step)
            try:
                verify(folder)
                yield self.read(step)
            except Exception as error:  # Orbax and TensorStore raise many kinds
                print(f"{folder}: not used: {first_line(error)}", file=sys.stderr, flush=True)

    def save(self, step: int, tree: Any, note: Mapping[str, Any]) -> None:
        """Copies the tree, sharded or not, and starts to write it. All processes must call it.

        Raises:
          NotWritten: the save before this one failed.
          Diverged: a leaf is not finite; nothing is written.
        """
        self.wait()
        leaves = jax.tree.map(np.array, processes.fetch(named_leaves(tree)))
        for name, leaf in leaves.items():
            if np.issubdtype(leaf.dtype, np.inexact) and not np.isfinite(leaf).all():
                raise Diverged(f"step {step}: {name} is not finite; no checkpoint is made of it")
        if processes.is_first():
            self._saving = self._worker.submit(self._commit, step, leaves, dict(note))
            failpoints.reach("saving")

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

    def read(self, step: int) -> Checkpoint:
        """Reads the checkpoint of one step, without verifying it."""
        with self._manager(write=False) as manager:
            wanted = {"state": ocp.args.StandardRestore(), "note": ocp.args.JsonRestore()}
            restored = manager.restore(step, args=ocp.args.Composite(**wanted))
        return Checkpoint(step, dict(restored["state"]), dict(restored["note"]))

    def _commit(self, step: int, leaves: dict[str, np.ndarray], note: dict) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        failpoints.reach("writing")
        full = {name: leaf for name, leaf in leaves.items() if leaf.size}  # Orbax refuses others
        args = ocp.args.Composite(state=ocp.args.StandardSave(full), note=ocp.args.JsonSave(note))
        with self._manager(write=True) as manager:
            manager.save(step, args=args)
        failpoints.reach("committed")
        write_manifest(self._folder / str(step))
        failpoints.reach("sealed")
        for old in sorted(self._steps())[: -self._keep]:
            if old not in self._at:
                self._remove(old)

    def _manager(self, write: bool) -> ocp.CheckpointManager:
        alone = jax.process_index()
        process_options = ocp.options.MultiprocessingOptions(
            primary_host=alone, active_processes={alone}, barrier_sync_key_prefix=str(alone)
        )
        options = ocp.CheckpointManagerOptions(
            create=False,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=write,
            multiprocessing_options=process_options,
        )
        return ocp.CheckpointManager(self._folder.absolute(), options=options)

    def _steps(self) -> list[int]:
        return [int(path.name) for path in self._folder.glob("*") if path.name.isdecimal()]

    def _remove(self, step: int) -> None:
        """Deletes a checkpoint, its manifest first, so that a deletion cut short leaves an
        incomplete checkpoint and not a damaged one.
        """
        (self._folder / str(step) / MANIFEST).unlink(missing_ok=True)
        failpoints.reach("deleting")
        shutil.rmtree(self._folder / str(step))


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
    for name in leaves | wanted:
        if name not in wanted:
            raise Refused(f"checkpoint: {name} is not in this model")
        if name not in leaves:
            raise Refused(f"checkpoint: {name} is missing")
        for what in ("shape", "dtype"):
            has, needs = getattr(leaves[name], what), getattr(wanted[name], what)
            if has != needs:
                raise Refused(f"checkpoint: {name} has {what} {has}; the model has {needs}")
    placed = [processes.place(leaves[name], leaf.sharding) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(tree), placed)


def write_manifest(folder: Path) -> None:
    """Writes the SHA-256 of every file in a checkpoint's folder, which completes the checkpoint."""
    write_json(folder / MANIFEST, _hashes(folder))


def verify(folder: Path) -> None:
    """Raises ValueError if a checkpoint's folder is incomplete, or a file is not as written."""
    try:
        wanted = read_object(folder / MANIFEST)
    except FileNotFoundError:
        raise ValueError("the save did not finish") from None
    except ValueError:
        raise ValueError(f"{MANIFEST} is damaged") from None
    hashes = _hashes(folder)
    for name in sorted({*wanted, *hashes}):
        if name not in hashes:
            raise ValueError(f"{name} is missing")
        if wanted.get(name) != hashes[name]:
            raise ValueError(f"{name} is not what was written")


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in (MANIFEST, f"{MANIFEST}.part")
    }
