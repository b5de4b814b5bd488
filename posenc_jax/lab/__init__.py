"""The lab: everything that measures encodings, from a config to a report."""
