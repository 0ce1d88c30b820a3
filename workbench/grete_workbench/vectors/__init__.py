"""Checks grete's formats against what the real Apache Samza wrote: `python -m grete_workbench.vectors DIR`."""

from grete_workbench.vectors.run import FileResult as FileResult
from grete_workbench.vectors.run import check_directory as check_directory
from grete_workbench.vectors.run import check_file as check_file
