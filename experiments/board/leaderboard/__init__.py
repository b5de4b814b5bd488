"""Every method on the same tasks at one budget: its cost in the trained window, its gain beyond.

A task has the largest size that fits a window of tokens; windows of tests are 1, 2, 4 and 8 times
as wide.
"""
