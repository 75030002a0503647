"""A report's text where a reader takes some characters for its own: each is told as what it is."""

from __future__ import annotations

import re

# What XML 1.0 can't hold at all, not even escaped (its section 2.2).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKUP = re.compile(r"""[&<>"'\\`*_{}\[\]()#+!|~$@:-]""")


def xml_text(text: str) -> str:
    """``text`` with what XML has no place for spelt out; markup is the writer's to escape."""
    return _NOT_XML.sub(lambda found: repr(found[0])[1:-1], text)


def markdown(text: str) -> str:
    """``text`` as it reads in a cell of a GitHub table: no markup, no link, mention or break."""
    plain = " ".join(xml_text(text).split())
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", plain)


def command_data(text: str) -> str:
    """``text`` as the message of a GitHub workflow command."""
    shown = xml_text(text)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """``text`` as a property's value in a GitHub workflow command."""
    return command_data(text).replace(":", "%3A").replace(",", "%2C")
