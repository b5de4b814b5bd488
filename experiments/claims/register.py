"""All claims, in the order of the ledger."""

from experiments.claims import (
    absolute,
    additive,
    extrapolation,
    heads,
    images,
    masks,
    modal,
    nearness,
    order,
    padding,
    relative,
    rotary,
    sinusoidal,
    spectrum,
    worked,
)
from experiments.claims.ledger import Claim

FAMILIES = (
    *(order, sinusoidal, spectrum, absolute, additive),
    *(relative, rotary, heads, extrapolation, nearness),
    *(padding, masks, images, modal, worked),
)

LEDGER: dict[str, Claim] = {
    entry.id: entry
    for family in FAMILIES
    for entry in vars(family).values()
    if isinstance(entry, Claim)
}
