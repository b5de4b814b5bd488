"""Pictures on a canvas: what is there, where, which pixels, and drawing pixel by pixel.

Methods of two axes read (row, column), all others the number of the patch, row by row. A table of
positions has the size of the trained canvas and is clamped beyond it, unless the config sets these
options. `swin_2d` makes two rows: with attention to the whole canvas, and in shifted windows.
"""
