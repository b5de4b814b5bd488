"""Reads a released model, and shows what each extension of its context does to it.

The checkpoint is a folder of Hugging Face. Under plain positions and under every extension that
fits, it reads windows of text of several lengths, and finds a key in long prompts. Some of the
extensions are then fine-tuned, and measured again. A row is an extension, or an extension after
fine-tuning.
"""
