"""Of what a release was made, as SLSA's provenance in an in-toto statement: `provenance.py FOLDER VERSION COMMIT`.

Its subjects are the files of the folder; it names the commit and the locks that the build had, and no moment, so that
the same commit gives the same bytes. `GRETE_BUILDER` names who built, as a URI. It is unsigned: who publishes, signs.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from google.protobuf.json_format import MessageToDict, MessageToJson, ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

_TYPE = "https://slsa.dev/provenance/v1"
_BY_HAND = "urn:grete:make-dist"
_LOCKS = ("requirements/build.txt", "requirements/runtime.txt", "scripts/packages/dist.txt")


def main(folder: str, version: str, commit: str) -> None:
    """Print it."""
    provenance = {
        "buildDefinition": {
            "buildType": "urn:grete:release:1",
            "externalParameters": {"command": "make dist", "version": version},
            "resolvedDependencies": [
                {"name": "source", "digest": {"gitCommit": commit}},
                *({"name": lock, "digest": {"sha256": _sha256(Path(lock))}} for lock in _LOCKS),
            ],
        },
        "runDetails": {"builder": {"id": os.environ.get("GRETE_BUILDER", _BY_HAND)}},
    }
    predicate = MessageToDict(ParseDict(provenance, Provenance()))  # refuses what the schema does not know
    files = sorted(Path(folder).glob("grete-*"))
    subjects = [ResourceDescriptor(name=one.name, digest={"sha256": _sha256(one)}).pb for one in files]
    statement = Statement(subjects, _TYPE, predicate)
    statement.validate()
    print(MessageToJson(statement.pb, sort_keys=True))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main(*sys.argv[1:])
