"""A small vision Transformer with no positions, with patch numbers, and with rows and columns.

Each method is trained on images of one resolution and tested at that and at larger ones, in the
three views of `posenc_jax.lab.tasks.images`. The shuffled view is the control: a model that reads
positions must be clearly worse on it, one without positions equally good.

The positions of a method of two axes are (row, column), of any other the number of the patch, row
by row. A table of positions has the size of the trained grid (`length`, `window`) and is clamped
beyond it, unless the config sets these options.
"""
