"""Serdes by name: string, bytes, json, integer, long, avro, and the application's own.

A stream's or store's serde is named in configuration; the name is looked up in `serializers.registry.<name>.class`
first, then among the built-in ones, so that Samza's files keep working.
"""

from grete.application.serdes import StreamSerdes as StreamSerdes
from grete.serdes.resolve import load_serde as load_serde
from grete.serdes.resolve import serde_names as serde_names
from grete.serdes.resolve import store_serde_names as store_serde_names
from grete.serdes.resolve import store_serdes as store_serdes
from grete.serdes.resolve import stream_serdes as stream_serdes
