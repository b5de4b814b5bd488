"""Language models on tokens, and what they take from their context.

context_tests.py  the same last tokens with more context, spans that were read before or not
probes.py         attention sinks, massive values and influence, before and after training
predictions.py    what three papers claim of these, with the outcome that would refute it
outcomes.py       the predictions beside what was measured
rows.py           the records of several runs as rows of one page
"""
