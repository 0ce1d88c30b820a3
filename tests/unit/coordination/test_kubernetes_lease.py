"""Leases as leaderships: names of scopes, and what people have changed by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.coordination.base import Holder
from grete.coordination.kubernetes.lease import LeaseState, changed, lease_name, read_lease
from grete.coordination.observed import Term
from grete.errors import CoordinationError

HOLDER = Holder("host-1", 17, "incarnation", 1_700_000_000_000, heard_ms=1_700_000_000_000)
_LEGAL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@given(st.text(), st.text())
def test_each_scope_has_a_legal_name_of_its_own(one: str, two: str) -> None:
    name = lease_name("grete", one)
    assert _LEGAL.fullmatch(name)
    assert len(name) <= 253
    assert (name == lease_name("grete", two)) == (one == two)


def test_scopes_that_read_the_same_stay_apart() -> None:
    names = {lease_name("grete", scope) for scope in ("job/a-b-1", "job/a/b-1", "Job/a-b-1", "job/a b-1")}
    assert len(names) == 4
    assert all(name.startswith("grete-job-a-b-1-") for name in names)


def after(before: LeaseState | None, term: Term) -> dict[str, Any]:
    return changed(before, term, "grete-x", "x", 14.2)


def renewed(before: LeaseState) -> dict[str, Any]:
    return after(before, replace(before.term, renewals=before.term.renewals + 1))


def lease(**spec: Any) -> dict[str, Any]:
    document = after(None, Term(7, HOLDER))
    document["spec"].update(spec)
    return document


def test_people_see_what_they_know_of_leases() -> None:
    spec = lease()["spec"]
    assert spec == {
        "holderIdentity": "host-1_17_incarnation",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "2023-11-14T22:13:20.000000Z",
        "renewTime": "2023-11-14T22:13:20.000000Z",
    }


def test_each_election_is_a_transition_and_a_renewal_is_none() -> None:
    first = read_lease(lease())
    again = read_lease(renewed(first))
    assert again.term == Term(7, HOLDER, 1)
    assert again.document["spec"]["leaseTransitions"] == 0
    free = read_lease(after(again, replace(again.term, holder=None)))
    assert (free.term.epoch, free.term.holder, free.document["spec"]["holderIdentity"]) == (7, None, "")
    second = read_lease(after(free, Term(8, HOLDER)))
    assert second.term == Term(8, HOLDER)
    assert second.document["spec"]["leaseTransitions"] == 1


def test_what_others_have_noted_on_the_lease_stays() -> None:
    document = lease()
    document["metadata"] |= {"labels": {"team": "flights"}, "resourceVersion": "12"}
    document["metadata"]["annotations"]["note"] = "do not touch"
    metadata = renewed(read_lease(document))["metadata"]
    assert metadata["labels"] == {"team": "flights"}
    assert metadata["annotations"]["note"] == "do not touch"
    assert metadata["resourceVersion"] == "12"


def test_a_lease_without_annotations_counts_its_transitions() -> None:
    """As one that was made by hand, or whose annotations were removed after a release."""
    state = read_lease({"metadata": {"name": "x"}, "spec": {"leaseTransitions": 41}})
    assert (state.term.epoch, state.term.holder) == (41, None)


@pytest.mark.parametrize(
    ("annotation", "spec", "words"),
    [
        ("grete/epoch=seven", {}, "holds no leadership of grete"),
        ("grete/holder={}", {}, "holds no leadership of grete"),
        ("grete/holder=nonsense", {}, "holds no leadership of grete"),
        (
            "a=b",
            {"holderIdentity": "kube-scheduler"},
            "held by 'kube-scheduler', which is no coordinator of grete",
        ),
    ],
)
def test_a_lease_that_is_something_elses_is_an_error_with_the_way_out(
    annotation: str, spec: dict[str, Any], words: str
) -> None:
    document = lease(**spec)
    key, _, value = annotation.partition("=")
    document["metadata"]["annotations"][key] = value
    with pytest.raises(CoordinationError, match=words):
        read_lease(document)
