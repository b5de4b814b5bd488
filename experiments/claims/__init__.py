"""The claims ledger: claims about positional encodings, each tested by a measurement.

    config.py       the config and what it refuses
    run.py          measures the claims and reports them
    ledger.py       what a claim, a measurement and a verdict are
    register.py     all claims; the claims themselves are in a module for each family
    models.py       trains models and shares them between claims; budgets, seeds, scores
    fingerprint.py  the hash of a claim and its rule
    activations.py  hidden states, attention weights and keys of trained models
    figures.py      what claims draw
    glyphs.py       printed digits
    entries.py      claims.json
    decisions.py    one verdict from all budgets; the false discovery rate over all claims
    page.py         report.html and Markdown

Each claim at each budget is written to disk as soon as it is measured, so an interrupted run
resumes with what is missing. `scripts/claims.py` takes several folders.
"""
