"""Many methods, tasks, learning rates and seeds, and what may be said of their order.

training.py  trainings that end when a task is learned, or at each of several budgets
leaderboard  every method on the same tasks, until it has learned them
published    orderings that papers published, in settings of ours
"""
