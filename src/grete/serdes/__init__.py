"""Serdes by name: string, bytes, json, integer, long, avro, and the application's own.

A stream's or store's serde is named in configuration; the name is looked up in `serializers.registry.<name>.class`
first, then among the built-in ones, so that Samza's files keep working.
"""

from grete.serdes.base import StreamSerdes as StreamSerdes
from grete.serdes.resolve import load_serde as load_serde
from grete.serdes.resolve import store_serdes as store_serdes
from grete.serdes.resolve import stream_serdes as stream_serdes
