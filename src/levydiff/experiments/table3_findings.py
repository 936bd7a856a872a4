"""What Table 3 shows, in words."""

from __future__ import annotations

#: By data set and budget; Markdown.
FINDINGS: dict[tuple[str, str], str] = {}
