"""Settings of the site that `make docs-site` builds. Pages are those of the repository, in its folders."""

from __future__ import annotations

import sys
from pathlib import Path

import grete

sys.path.insert(0, str(Path(__file__).parent))

project = "grete"
author = "the authors of grete"
copyright = author
version = release = grete.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser", "docstrings"]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True

html_theme = "furo"
html_title = f"grete {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Markdown as Git hosts show it: links to headings by their text, tables, no smart quotes in commands.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
smartquotes = False
suppress_warnings = ["myst.header"]  # a changelog jumps from the title to its entries

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Signatures name types of other libraries, and some of grete's that nobody outside makes; docstrings name whatever
# they like in backticks. Links between pages, and to headings, are never passed over.
nitpick_ignore_regex = [("py:obj", ".*"), ("py:(class|exc|data)", r"(?!grete\.).*")]
nitpick_ignore = [
    ("py:class", f"grete.{name}")
    for name in (
        "checkpoint.committed_reader.Consumer",
        "checkpoint.committed_reader.M",
        "checkpoint.committed_reader.P",
        "checkpoint.committed_reader.ConsumedPartition",
        "checkpoint.output_commits.OutputCommits",
        "checkpoint.output_commits.Stamp",
        "deploy.deployment.Deployment",
        "keyed_log.memory.MemoryKeyedLog",
        "metadata.coordinator_stream.CoordinatorStream",
        "migration.spark_state.Rebuilt",
        "model.ending.ContainerEnd",
        "model.job.JobModel",
        "model.startpoint.StateChoice",
        "spark.lineage.location.Location",
        "systems.inputs.Inputs",
        "testing.job_world.JobWorld",
        "testing.kafka_broker.KafkaNode",
        "testing.server_cluster.ServerCluster",
    )
]
