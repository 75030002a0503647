"""Configurations in the words of what people already use, and what those words can't say."""
