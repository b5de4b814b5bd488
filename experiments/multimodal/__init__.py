"""Trains encoders on clips of frames, tones and text, and tests them on longer clips.

Methods of three axes read (time, row, column), as Qwen2.5-Omni gives them (arXiv 2503.20215).
Methods of one axis make two rows: with the number of each token in storage, and with its time.
"""
