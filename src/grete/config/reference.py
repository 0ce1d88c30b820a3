"""How a reference to a secret is written: `${env:NAME}` or `${file:/path}`, also within a value."""

from __future__ import annotations

import re

REFERENCE = re.compile(r"\$\{(?P<kind>env|file):(?P<name>[^{}]*)\}")
"""One whose name is empty is one too: it is shown as it is written, and refers to nothing."""
