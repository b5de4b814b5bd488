"""Completes Python functions of held-out files, after more of the file than in training.

A length is the number of bytes of a window. Completion, the share of bytes that are right, is also
recorded by the place of a function in its file.
"""
