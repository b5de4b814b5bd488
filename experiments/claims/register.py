"""All claims, in the order of the ledger. A new module of claims needs a name in FAMILIES."""

from importlib import import_module

from experiments.claims.ledger import Claim

FAMILIES = (
    *("order", "sinusoidal", "spectrum", "absolute", "additive"),
    *("relative", "rotary", "heads", "extrapolation", "nearness"),
    *("padding", "images", "modal", "worked"),
)
LEDGER: dict[str, Claim] = {
    entry.id: entry
    for family in FAMILIES
    for entry in vars(import_module(f"experiments.claims.{family}")).values()
    if isinstance(entry, Claim)
}
