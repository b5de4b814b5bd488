"""A worker that ends with its parent, or does not; in a module of its own, which it is found by."""

import time

from posenc_jax.lab.hosts import signals


def work(follows: str) -> None:
    if follows == "on":
        signals.end_with_parent()
    print("working", flush=True)
    time.sleep(60)
