"""The command line: ``levydiff train | sample | evaluate | demo | info``.

This package is the only place that turns strings into objects.
"""

from .main import main

__all__ = ["main"]
