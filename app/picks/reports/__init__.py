"""A check as others read it: a terminal, JUnit's readers, GitHub."""
