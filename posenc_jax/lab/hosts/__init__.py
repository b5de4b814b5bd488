"""The machine: devices, processes, signals, files, compiling."""
