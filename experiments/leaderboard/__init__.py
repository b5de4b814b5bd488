"""Every method on the same tasks at one budget: its cost in range, its gain beyond.

A task has the largest size that fits a window of tokens; tests have windows 1, 2, 4, 8 times as
wide.
"""
