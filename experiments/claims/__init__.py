"""The claims ledger: what is said of positional encodings, each claim put to a measured test.

    config.py    the config and what it refuses
    run.py       measures the claims and reports them
    ledger.py    what a claim, a measurement and a rule are
    register.py  all claims; others are the claims themselves, a module for each family
    lab.py       models trained once and shared, budgets, seeds
    inside.py    hidden states and attention weights of trained models
    figures.py   what claims draw
    entries.py   claims.json
    pages.py     report.html and Markdown

Each claim is written to disk as soon as it is measured. A run that was interrupted lacks only the
claims that were being measured: started again, it measures those that are missing.
`scripts/claims.py` takes several folders.
"""
