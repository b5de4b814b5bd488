"""Trains encoders on clips of frames, tones and text, and tests them on longer clips.

Methods of three axes read (time, row, column), as Qwen2.5-Omni gives them (arXiv 2503.20215),
`mhrope` with rows and columns from 0 on in each frame (2510.23095), and `video_rope` on its
diagonal (2502.05173), where a tone has the time of its frame.
Methods of one axis make two rows: with the number of each token in storage, and with its time.
"""
