"""What scripts/bench_gpu.py measures on a GPU, each part in processes of its own."""
