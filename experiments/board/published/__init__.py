"""Results of papers about positional encodings, posed at a size that two CPU cores can train.

Each row is one published ordering: methods with their numbers in one setting. The same methods are
trained here, at half of a budget and at all of it, and compared by rank.
"""
