"""A small vision Transformer with every kind of position: none, flattened, and by row and column.

Each method is trained on images of one resolution and tested at that and at larger ones, in the
three views of `posenc_jax.lab.tasks.images`. The shuffled view is the control: there a model that
reads positions must be clearly worse, and one without positions as good as before.

A method of two axes gets (row, column) as positions, any other the number of the patch, row by row.
A method with a table gets one of the trained grid's size (`length`, `window`), clamped beyond it,
unless the config sets these options.
"""
