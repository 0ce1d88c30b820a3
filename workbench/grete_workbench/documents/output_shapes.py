"""What each command prints with `-o json`.

A shape is a dict of fields, a list of one shape, a tuple of shapes that are possible, or a text `TYPE` or
`TYPE: meaning`. `?` after a field's name: it may be missing; `*` in place of names: any name. Unit tests hold
everything that a command prints against its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = Mapping[str, Any] | list[Any] | str | tuple[Any, ...]

_OFFSETS = {"*": "text: offset, by `system.stream.partition`"}
_CHANGES = [
    {
        "key": "text",
        "old": "text or null: secrets masked",
        "new": "text or null: null where it is unset",
        "touches": "text: what a change of it restarts",
    }
]
_COMPARED: Mapping[str, Any] = {
    "job": "text: the clone",
    "original": "text",
    "equal": "truth: whether all that was compared is the same",
    "outputs": [
        {
            "output": "text: a stream; with `--tables` also a folder or a table",
            "clone_output": "text",
            "records": "integer: or rows",
            "clone_records": "integer",
            "same": "integer: keys with the same last value; rows, of a table without `outputs.NAME.keys`",
            "differ": "integer",
            "missing": "integer: keys or rows that the clone has not",
            "more": "integer: keys or rows that it alone has",
            "sums": {
                "*": [
                    "number: of one in last values that are JSON, or of a column; the original's and the clone's"
                ]
            },
            "examples": ["text: keys or rows that are not the same"],
            "columns": ["text: of a table; those that the clone has not, and that were not compared"],
            "clone_columns": ["text: those that it alone has"],
        }
    ],
}
_OFFSET_CHANGES = [
    {
        "task": "text",
        "ssp": "text",
        "current": "text or null",
        "new": "text or null: null where it is taken away",
    }
]
_HOLDER = {
    "host": "text",
    "pid": "integer",
    "incarnation": "text: differs for each process",
    "since_ms": "integer",
    "heard_ms": "integer or null: when it renewed last, by its own clock",
}
_LEADER = {"job": "text", "leader": (_HOLDER, "null"), "epoch": "integer or null: of who leads"}
_DEPLOYED = {
    "id": "text",
    "state": "text: as the manager has it",
    "live": "truth",
    "since_ms": "integer or null",
    "detail": "text",
    "attempts": [
        {
            "number": "integer",
            "where": "text",
            "state": "text",
            "since_ms": "integer or null",
            "logs": "text: the command that shows them",
        }
    ],
    "containers": [
        {
            "container": "text: its number",
            "where": "text",
            "since_ms": "integer or null",
            "state": "text",
            "logs": "text: the command that shows them",
        }
    ],
}
_PACKAGE = {
    "kind": "text: framework or application",
    "grete": "text",
    "python": "text",
    "platform": "text",
    "libc": "text",
    "digest": "text",
    "lock": "text: hash of the lock that it was built from",
    "files": "integer",
    "bytes": "integer",
}
_RECORD = {
    "offset": "integer",
    "partition?": "integer: of a stream",
    "key?": "any: JSON as such, other UTF-8 as text, else `hex`; with `--raw` hex",
    "value?": "any: as the key",
    "timestamp_ms?": "integer: of a stream",
    "headers?": "any: pairs of name and value",
    "type?": "text: of a coordinator stream, as Samza names it",
    "values?": "any: of a coordinator stream",
    "source?": "text or null: who wrote it",
    "error?": "text: why the record is not understood",
}
_ENTRY = {
    "task": "text",
    "partition": "integer: of the changelog",
    "offset": "integer: of the record in it that wrote the entry",
    "timestamp_ms": "integer: when",
    "key": "any: as the store's serde reads it, where it is one of grete's; else as of `stream dump`",
    "value": "any: as the key",
}
_ENDED = {"job": "text", "state": "text: as it is then; with `--no-wait` what was asked for"}
_CONTAINER = {
    "container": "text",
    "requested": "text",
    "id": "text or null: of the request; null where the container had no coordinator and was ended at once",
}
LINES = frozenset(
    {
        "store get",
        "store scan",
        "stream dump",
        "stream tail",
        "logs",
        "dead-letters list",
        "leader watch",
        "ui",
    }
)
"""Commands that print an object a line, as it comes."""
SHAPES: Mapping[str, Shape] = {
    "init": {
        "job": "text",
        "folder": "text",
        "files": ["text"],
        "blocks": ["text: with `--kind samza`, what has to be ported first"],
    },
    "run": {
        "job": "text",
        "application": "text",
        "inputs": {"*": "integer: partitions"},
        "outputs": {"*": "any: partitions, 0 for one that will be created; else the name of a format"},
        "containers": "integer",
        "tasks": "integer",
        "output_mode": "text or null: null of a StreamTask",
        "settings": {"*": {"value": "text", "reason": "text: why it is not Spark's default"}},
        "plan": ({"*": "text: Spark's plan of an output"}, "null"),
    },
    "deploy plan": {
        "manager": "text: standalone, yarn or kubernetes",
        "*": "any: what would be created there",
    },
    "deploy apply": {"job": "text", **_DEPLOYED},
    "deploy status": [_DEPLOYED],
    "deploy kill": {"ended": ["text: ids"]},
    "deploy chart": {"files": ["text"]},
    "status": [
        {
            "job": "text",
            "state": "text",
            "tasks": "integer or null",
            "behind": "integer or null: records of all inputs not processed yet; null where not known",
            "lag": {
                "total": "integer or null",
                "tasks": {"*": "integer or null: records behind, by task"},
                "partitions": [
                    {
                        "task": "text or null: null where no task reads it yet",
                        "system": "text",
                        "stream": "text",
                        "partition": "integer",
                        "checkpointed": "text or null: last processed offset",
                        "upcoming": "text: next to be written",
                        "lag": "integer or null",
                    }
                ],
                "missing": ["text: inputs that are not there"],
            },
            "run_by": "text or null: who leads",
            "silent_s": "integer or null: since it was heard of, where that is longer than the lease",
            "url": "text or null: of the coordinator",
            "public_url": "text or null",
            "token_file": "text or null",
            "run_id": "text or null",
            "epoch": "integer or null",
            "hosts": {"*": "text: by container"},
            "quarantined": ["text: the first records that are not understood"],
            "quarantined_count": "integer",
            "on_their_own": ["text: containers of this machine without a coordinator"],
            "processors": (["text"], "null"),
            "resting": {"*": "text: why a container does not run"},
            "spark": "any: Spark's figures of a running pipeline, by container and group; else null",
            "expectations": ({"*": {"checked": "integer: by its containers", "failed": "integer"}}, "null"),
            "message": "text: what is not as it should be",
        }
    ],
    "ui": {"url": "text", "link": "text: signs a browser in, once and within a minute"},
    "stop": _ENDED,
    "drain": _ENDED,
    "leader show": {
        **_LEADER,
        "standbys": [{"host": "text", "pid": "integer", "*": "any"}],
    },
    "leader watch": {"at_ms": "integer", **_LEADER},
    "leader step-down": {**_LEADER, "asked": "integer: the epoch that was asked to end"},
    "container list": [
        {
            "container": "text",
            "state": "text",
            "host": "text or null",
            "epoch": "integer or null: of its last launch",
            "handle": "text or null: the launcher's name of it",
            "pid": "integer or null",
            "tasks": ["text"],
            "message": "text",
        }
    ],
    "container stop": _CONTAINER,
    "container start": _CONTAINER,
    "container restart": _CONTAINER,
    "container move": _CONTAINER,
    "config get": {"*": "text: secrets masked"},
    "config set": _CHANGES,
    "config unset": _CHANGES,
    "config rollback": _CHANGES,
    "config diff": _CHANGES,
    "config history": [
        {
            "number": "integer",
            "when": "text or null: UTC",
            "who": "text or null",
            "source": "text or null: the program",
            "run_id": "text or null",
            "reason": "text",
            "whole": "truth: not after the stream was compacted",
            "changes": _CHANGES,
        }
    ],
    "autosize plan": {
        "job": "text",
        "figures": "integer: so many were recorded, one each ten seconds",
        "sizes": [{"at": "text", "containers": "integer", "wanted": "integer", "why": "text"}],
        "batches": [{"at": "text", "records": "integer", "wanted": "integer", "why": "text"}],
        "standing": "text: what the rule does in the end",
    },
    "job-model": [
        {
            "task": "text",
            "container": "text",
            "host": "text or null",
            "changelog_partition": "integer or null",
            "inputs": ["text"],
            "checkpoint": {"*": "text or null: offset, by `system.stream.partition`"},
        }
    ],
    "checkpoint show": {
        "*": {
            "offsets": _OFFSETS,
            "lineage": "text: of a pipeline; empty where it was moved by hand",
            "batch_id": "integer",
            "store_positions": {"*": "integer: the changelog's end, by store"},
            "foreign_offsets": (
                {"*": "any: of sources that only Spark knows, null where not known here"},
                "null",
            ),
        }
    },
    "checkpoint history": [
        {
            "timestamp_ms": "integer",
            "lineage": "text",
            "batch_id": "integer",
            "task": "text",
            "offsets": _OFFSETS,
        }
    ],
    "checkpoint diff": _OFFSET_CHANGES,
    "checkpoint export": {"*": _OFFSETS},
    "checkpoint overwrite": {"executed": "truth", "changes": _OFFSET_CHANGES},
    "checkpoint rewind": {
        "executed": "truth",
        "reprocessed": "integer or null: records",
        "skipped": "integer or null: records",
        "ssps": [
            {
                "task": "text",
                "ssp": "text",
                "current": "text or null",
                "new": "text or null",
                "reprocessed": "integer or null",
                "skipped": "integer or null",
            }
        ],
        "state": {"*": {"choice": "text", "positions": {"*": "integer: by store"}}},
        "unread": ["text: startpoints there already that no task has read"],
    },
    "startpoint set": {"ssp": "text", "task": "text or null: null for all", "to": "text", "tasks": ["text"]},
    "startpoint show": [
        {
            "ssp": "text",
            "task": "text or null",
            "to": "text",
            "type": "text",
            "created_ms": "integer",
            "expires_ms": "integer or null",
            "status": "text",
        }
    ],
    "startpoint delete": {"deleted": "integer"},
    "stream write": _CHANGES,
    "stream dump": _RECORD,
    "stream tail": _RECORD,
    "stream append": {"stream": "text", "appended": "integer"},
    "stream create": {
        "stream": "text",
        "partitions": "integer: at least, of one that was there",
        "compacted": "truth or null: null of one that was there",
        "created": "truth",
    },
    "stream grow": {"stream": "text", "before": "integer", "partitions": "integer"},
    "stream quarantine": [{"offset": "integer", "reason": "text"}],
    "stream list": [{"stream": "text", "partitions": "integer", "records": "integer", "compacted": "truth"}],
    "store get": _ENTRY,
    "store scan": _ENTRY,
    "store export": {
        "job": "text",
        "store": "text",
        "folder": "text",
        "tasks": [{"task": "text", "entries": "integer"}],
    },
    "store import": {
        "job": "text",
        "store": "text",
        "tasks": [
            {
                "task": "text",
                "entries": "integer: that it has then",
                "deletions": "integer: of what it has now and the export has not",
            }
        ],
        "executed": "truth",
    },
    "logs": {"container": "text", "line": "text"},
    "dead-letters list": {
        "number": "text: PARTITION:OFFSET in the stream of dead letters",
        "replayed": "truth",
        "task": "text",
        "ssp": "text",
        "offset": "text: of the message in its input",
        "error": "text",
        "timestamp_ms": "integer",
        "key_base64": "text or null",
        "value_base64": "text or null",
    },
    "dead-letters replay": {
        "executed": "truth",
        "appended": {"*": "integer: messages, by input"},
        "replayed_before": "integer: left out, without `--again`",
    },
    "job clone": {"job": "text", "original": "text", "file": "text: where the configuration was written"},
    "job compare": _COMPARED,
    "job promote": {
        **_COMPARED,
        "offsets": {"*": "integer: where both stand, by `system.stream.partition`"},
        "promoted": "truth",
    },
    "job elasticity": {
        "job": "text",
        "before": "integer: tasks for each partition",
        "factor": "integer: those that are asked for",
        "offsets": {
            "*": "integer: where the tasks of a partition stand or stood together, by `system.stream.partition`"
        },
        "apart": "truth: whether they did not stand alike, so that the job has to run for it",
        "done": "truth",
    },
    "job delete": {
        "job": "text",
        "deleted": "truth",
        "coordinator_stream?": "text",
        "checkpoint_log?": "text",
        "changelogs?": ["text"],
        "folder?": "text",
        "checkpoint_copies?": ["text"],
        "log_stream?": "text",
        "left?": ["text: what stays, and why"],
        "lineages?": "text: an address of Hadoop's, which goes as well",
        "snapshots?": "text: the folder of the stores' snapshots, empty without",
        "lineages_left?": "text: that address, where nothing there could be removed",
    },
    "history": [
        {
            "number": "integer",
            "timestamp_ms": "integer",
            "event": "text",
            "username": "text",
            "host": "text",
            "*": "text: details of the event",
        }
    ],
    "doctor": [{"check": "text", "ok": "truth", "found": "text", "way_out": "text: empty where all is well"}],
    "package build": {"folder": "text", "archive": "text", **_PACKAGE},
    "package verify": {
        "packages": [
            {
                "package": "text",
                "ok": "truth",
                "problems": ["text"],
                **{f"{name}?": shape for name, shape in _PACKAGE.items()},
            }
        ],
        "skew": ["text: where the packages do not fit one another"],
    },
    "package show": [
        {
            **_PACKAGE,
            "requirements": {"*": "text: version, by name"},
            "hashes?": {"*": "text: with `--files`, SHA-256 by path"},
        }
    ],
    "migrate samza": (
        {
            "blocks": "truth: something will not work",
            "counts": {"*": "integer: keys, by outcome"},
            "keys": [
                {
                    "section": "text",
                    "key": "text",
                    "value": "text or null: secrets masked",
                    "outcome": "text",
                    "says": "text",
                    "way_out": "text",
                    "changes": {"*": "text or null: what it becomes, by key"},
                }
            ],
            "take_over?": "any: with `--coordinator-stream`, what would be taken over",
        },
        [{"samza": "text: with `--methods`, a method of Samza's", "grete": "text"}],
    ),
    "migrate spark": {
        "job": "text",
        "checkpoint": "text",
        "query": "text",
        "version": "text: Spark's",
        "committed": "integer or null: batch",
        "planned": "integer or null: batch",
        "blocks": "truth",
        "tasks": [
            {
                "task": "text",
                "container": "text or null",
                "checkpoint": {"*": "text or null: offset, by `system.stream.partition`"},
            }
        ],
        "planned_not_committed": {"*": "integer: records, by partition"},
        "findings": [
            {"section": "text", "what": "text", "outcome": "text", "says": "text", "way_out": "text"}
        ],
        "executed": "truth",
    },
    "migrate to-spark": {
        "job": "text",
        "lineage": "text: the folder or address that is copied",
        "committed": "integer: the last batch",
        "sources": ["text: `system.stream`, empty for a source that is not grete's"],
        "operators": ["text: that keep state, in Spark's words"],
        "checkpoint": "text",
        "executed": "truth",
    },
}
