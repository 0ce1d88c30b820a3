"""A leadership as a Lease says it: the fields that people and `kubectl` know, and ours in annotations.

    metadata.name                                 prefix, scope in the letters of DNS, and a digest of the scope
    metadata.annotations grete/scope              the scope
                         grete/epoch              grows with each election; `leaseTransitions` begins again with 0
                                                  when the Lease was deleted
                         grete/holder             host, process, incarnation, since when; none after a release
                         grete/renewals           stands still when the holder does
    spec.holderIdentity                           host_process_incarnation; empty after a release
    spec.acquireTime, renewTime                   by the holder's clock, for people
    spec.leaseDurationSeconds, leaseTransitions   as every user of Leases writes them

Decisions take the annotations; where the spec says that something else has the Lease, that is an error.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import orjson

from grete.coordination.base import Holder
from grete.coordination.kubernetes.api_server import Document
from grete.coordination.observed import Term
from grete.errors import CoordinationError

_SCOPE, _EPOCH, _HOLDER, _RENEWALS = "grete/scope", "grete/epoch", "grete/holder", "grete/renewals"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_SCOPE = 100
_DIGEST = 16


def lease_name(prefix: str, scope: str) -> str:
    """The Lease of a scope: a legal name that can be read, and that no other scope has."""
    plain = _NOT_IN_NAMES.sub("-", scope.lower())[:_LONGEST_SCOPE].strip("-")
    digest = hashlib.sha256(scope.encode()).hexdigest()[:_DIGEST]
    return "-".join(part for part in (prefix, plain, digest) if part)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A Lease as it was read."""

    term: Term
    document: Document


def read_lease(document: Document) -> LeaseState:
    """The leadership in a Lease.

    Raises:
        CoordinationError: the Lease is not ours, or was changed by hand into what cannot be understood.
    """
    metadata, spec = document["metadata"], document.get("spec") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    identity = spec.get("holderIdentity") or ""
    try:
        text = annotations.get(_HOLDER)
        holder = None if text is None or not identity else Holder(**orjson.loads(text))
        epoch = max(int(annotations.get(_EPOCH, "0")), int(spec.get("leaseTransitions") or 0))
        renewals = int(annotations.get(_RENEWALS, "0"))
    except (orjson.JSONDecodeError, TypeError, ValueError) as error:
        raise CoordinationError(
            f"Lease {_shown(document)} holds no leadership of grete ({error}); stop what uses it and delete it"
        ) from error
    if identity and (holder is None or identity != _identity(holder)):
        raise CoordinationError(
            f"Lease {_shown(document)} is held by {identity!r}, which is no coordinator of grete; stop it, and "
            f"delete the Lease"
        )
    return LeaseState(Term(epoch, holder, renewals), document)


def changed(before: LeaseState | None, term: Term, name: str, scope: str, ttl_s: float) -> Document:
    """The Lease with another term: of a new holder, renewed, or released. It stays then, since it holds the epoch."""
    document: Document = {"metadata": {"name": name}} if before is None else deepcopy(before.document)
    if term.holder is None:
        document["metadata"]["annotations"].pop(_HOLDER, None)
        _spec(document).update(holderIdentity="")
        return document
    if before is None or before.term.epoch != term.epoch:
        transitions = 0 if before is None else int(_spec(document).get("leaseTransitions") or 0) + 1
        _annotate(document, {_SCOPE: scope, _EPOCH: str(term.epoch)})
        _spec(document).update(
            leaseDurationSeconds=math.ceil(ttl_s),
            leaseTransitions=transitions,
            acquireTime=_micro_time(term.holder.since_ms),
        )
    return _held(document, term.holder, term.renewals)


def _held(document: Document, holder: Holder, renewals: int) -> Document:
    _annotate(document, {_HOLDER: orjson.dumps(asdict(holder)).decode(), _RENEWALS: str(renewals)})
    heard_ms = holder.since_ms if holder.heard_ms is None else holder.heard_ms
    _spec(document).update(holderIdentity=_identity(holder), renewTime=_micro_time(heard_ms))
    return document


def _annotate(document: Document, annotations: Mapping[str, str]) -> None:
    metadata = document["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}


def _spec(document: Document) -> Document:
    spec: Document = document.setdefault("spec", {})
    return spec


def _identity(holder: Holder) -> str:
    return f"{holder.host}_{holder.pid}_{holder.incarnation}"


def _micro_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _shown(document: Document) -> str:
    return f"{document['metadata'].get('namespace')}/{document['metadata'].get('name')}"
