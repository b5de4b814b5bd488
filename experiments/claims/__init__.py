"""The claims ledger: what is said of positional encodings, each claim put to a measured test.

    config.py       the config and what it refuses
    run.py          measures the claims and reports them
    ledger.py       what a claim and a measurement are
    verdicts.py     verdicts, and what rules make them from
    register.py     all claims; the claims themselves are in a module for each family
    models.py       trains models and shares them between claims; budgets, seeds, scores
    activations.py  hidden states, attention weights and keys of trained models
    figures.py      what claims draw
    glyphs.py       printed digits
    entries.py      claims.json
    pages.py        report.html and Markdown

A claim is written to disk as soon as it is measured, so an interrupted run resumes with the claims
that are missing. `scripts/claims.py` takes several folders.
"""
