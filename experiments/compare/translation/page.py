"""The report and the page of translations, with the table of BLEU."""

from functools import partial

from experiments.compare import page
from posenc_jax.lab.report import Section, length_table, summaries
from posenc_jax.lab.runs import StoredRun


def _translations(run: StoredRun) -> list[Section]:
    """The table of BLEU, if the run has decoded translations."""
    if not any(record["metric"] == "bleu" for record in run.records):
        return []
    trained = run.by_length.train_length
    summary = summaries.summarise(run.records, metric="bleu", train_length=trained)
    how = f"Of translations decoded greedily; {run.by_length.facts['bleu']}."
    return [Section("BLEU", [how, length_table.results(summary)])]


_ADDED = page.Additions(figures=_translations)
sections, document = partial(page.sections, added=_ADDED), partial(page.document, added=_ADDED)
