"""Checks of stream_config.json: a stream's properties under every name and in every combination of places."""

from __future__ import annotations

from grete.config.settings.streams import StreamSettings
from grete.model.ids import SystemStream
from grete_workbench.vectors.registry import Case, checker, has_fields, same


@checker("stream_config", knows=has_fields("config", "stream", "result"))
def check_stream_config(case: Case) -> None:
    """One configuration, and all that Samza says of the stream."""
    stream = StreamSettings(case["config"], SystemStream.parse(case["stream"]))
    ours = {
        "offset.default": stream.offset_default,
        "reset.offset": stream.is_reset,
        "bootstrap": stream.is_bootstrap,
        "key.serde": stream.key_serde and stream.key_serde[1],
        "msg.serde": stream.msg_serde and stream.msg_serde[1],
    }
    same(f"{case['stream']} of {case['config']}", ours, case["result"])
