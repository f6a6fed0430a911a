"""Whether anything may run as a program."""

from __future__ import annotations

import os

VARIABLE = "PADDLE_CHAINRULES_PROGRAMS"
"""Of the environment: ``off`` for who suspects programs, ``on`` as is the default."""

_given = os.environ.get(VARIABLE, "on")
if _given not in ("on", "off"):
    raise ValueError(
        f"the environment has {VARIABLE}={_given!r}; set it to 'off' to have functions "
        "and nets run as they are, or to 'on', as it is where it is not set"
    )


def programs_are_on() -> bool:
    """Whether functions and nets may run as programs, by the environment."""
    return _given == "on"
