"""Checks grete's formats against what the real Apache Samza wrote: `python -m grete.testing.vectors DIR`."""

from grete.testing.vectors.run import FileResult as FileResult
from grete.testing.vectors.run import check_directory as check_directory
from grete.testing.vectors.run import check_file as check_file
