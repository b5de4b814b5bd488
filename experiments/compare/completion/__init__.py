"""Python code of held-out files: functions to complete, and closing brackets to tell apart.

A length is the number of bytes of a window; at test it holds more of the file than in training. The
share that is right is also recorded by the place in the file.
"""
