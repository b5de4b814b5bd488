"""Documents of many windows, read with recurrence memory, with a cache, and window by window.

A decoder is trained as Transformer-XL is (Dai et al. 2019, arXiv 1901.02860): it reads a document
one window after the other, and attends to the hidden states of the last `memory` tokens, into which
no gradient flows. The same weights then read longer documents in three ways, see `reading.py`.
"""
