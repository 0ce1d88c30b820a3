"""Leadership on Kubernetes when answers are lost, the Lease is deleted, rights are missing, tokens are replaced."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.slow_service import check_that_a_grant_counts_from_its_request
from tests.support.tcp_proxy import TcpProxy

from grete.clock import SystemClock
from grete.coordination.base import Coordination, Leadership, campaign_patiently
from grete.coordination.kubernetes.access import in_pod, of_kubeconfig
from grete.coordination.kubernetes.api_server import ApiServer
from grete.coordination.kubernetes.coordination import KubernetesCoordination
from grete.coordination.kubernetes.lease import lease_name
from grete.errors import CellChanged, CoordinationError, CoordinationUnreachable
from grete.testing.clock import ManualClock
from grete_workbench.kube_apiserver import KubeApiServer

pytestmark = [pytest.mark.fault, pytest.mark.every_run]
TTL_S = 3.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
SCOPE = "job/counter-1"

Opener = Callable[..., KubernetesCoordination]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def opened(kubernetes: KubeApiServer, clock: ManualClock, prefix: str) -> Iterator[Opener]:
    with ExitStack() as stack:

        def open_one(access: Any = None) -> KubernetesCoordination:
            server = ApiServer(access or of_kubeconfig([kubernetes.admin]))
            own = KubernetesCoordination(server, clock, ttl_s=TTL_S, prefix=prefix)
            stack.callback(own.close)
            return own

        yield open_one


def behind_proxy(server: KubeApiServer) -> Any:
    keys = server.nodes[0].keys
    user = {"client-certificate": str(keys / "admin.crt"), "client-key": str(keys / "admin.key")}
    return of_kubeconfig([server.kubeconfig("proxied", user, port=server.nodes[0].proxied_port)])


def test_while_the_api_server_is_away_a_leadership_is_kept_for_as_long_as_nobody_else_can_be_elected(
    kubernetes: KubeApiServer, kubernetes_proxy: TcpProxy, opened: Opener, clock: ManualClock
) -> None:
    leader = opened(behind_proxy(kubernetes))
    granted = leader.campaign(SCOPE)
    kubernetes_proxy.cut()
    clock.advance(TTL_S * 0.9)  # it may not act any more, and nobody else may lead yet
    assert leader.renew(granted) == granted
    kubernetes_proxy.restore()
    renewed = leader.renew(granted)
    assert renewed is not None
    assert renewed.valid_until_s > granted.valid_until_s
    kubernetes_proxy.cut()
    clock.advance(TTL_S)
    assert leader.renew(renewed) is None
    with pytest.raises(CoordinationUnreachable, match="no answer from the API server"):
        leader.holder(SCOPE)


def test_while_the_api_server_is_slow_what_a_leader_may_do_counts_from_its_request(
    kubernetes: KubeApiServer, kubernetes_proxy: TcpProxy, prefix: str
) -> None:
    clock, server = SystemClock(), ApiServer(behind_proxy(kubernetes))
    with closing(KubernetesCoordination(server, clock, ttl_s=TTL_S, prefix=prefix)) as leader:
        check_that_a_grant_counts_from_its_request(
            leader, SCOPE, lambda: kubernetes_proxy.delay(0.1), ttl_s=TTL_S, at_least_s=0.2
        )


def test_a_renewal_of_a_short_lease_has_as_long_as_the_lease_lasts(
    kubernetes: KubeApiServer, kubernetes_proxy: TcpProxy, prefix: str
) -> None:
    """One that was given up closes its connection: three in a row beside busy processes cost a leadership."""
    clock, server = SystemClock(), ApiServer(behind_proxy(kubernetes))
    with closing(KubernetesCoordination(server, clock, ttl_s=3.0, prefix=prefix)) as leader:
        granted = leader.campaign(SCOPE)
        kubernetes_proxy.delay(0.4)
        renewed = leader.renew(granted)
    assert renewed is not None
    assert renewed.valid_until_s > granted.valid_until_s


@pytest.mark.nightly
def test_a_renewal_needs_no_new_connection(
    kubernetes: KubeApiServer, kubernetes_proxy: TcpProxy, opened: Opener, clock: ManualClock
) -> None:
    """Five seconds lie between two renewals with a lease of 15; a new one would need the server's name looked up."""
    leader = opened(behind_proxy(kubernetes))
    granted = leader.campaign(SCOPE)
    time.sleep(5.5)
    kubernetes_proxy.refuse()
    clock.advance(1)
    assert leader.renew(granted) not in (None, granted)


def test_an_election_whose_answer_is_lost_is_recognised_as_won(
    kubernetes: KubeApiServer, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is a renewal: neither counts twice, and the one who has won is not refused as a second one."""
    leader, other = opened(), opened()
    lose_answers(monkeypatch, "create", "replace")
    granted = leader.campaign(SCOPE)
    assert other.leading_epoch(SCOPE) == granted.epoch == 1
    assert leader.renew(granted) is not None
    second = other.campaign(SCOPE, take_over=True)
    assert second.epoch == 2
    assert leader.renew(granted) is None


def test_a_cell_whose_answer_is_lost_is_written_once(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened().cells(SCOPE), opened().cells(SCOPE)
    lose_answers(monkeypatch, "create", "replace", "remove")
    first = one.write("a", b"1", None)
    second = one.write("a", b"2", first.version)
    assert other.read("a") == second
    with pytest.raises(CellChanged):
        other.write("a", b"3", first.version)
    with pytest.raises(CoordinationUnreachable, match="is not known"):
        one.delete("a", second.version)
    assert other.read("a") is None


def lose_answers(monkeypatch: pytest.MonkeyPatch, *calls: str) -> None:
    """Every second call is done, and its answer lost, beginning with the first."""
    for name in calls:
        call, count = getattr(ApiServer, name), iter(range(1_000))

        def lossy(
            self: ApiServer, *words: Any, call: Any = call, count: Iterator[int] = count, **more: Any
        ) -> Any:
            answer = call(self, *words, **more)
            if next(count) % 2 == 0:
                raise CoordinationUnreachable("the answer was lost")
            return answer

        monkeypatch.setattr(ApiServer, name, lossy)


def test_a_lease_that_is_deleted_ends_the_leadership_and_the_callers_log_keeps_the_epoch_growing(
    kubernetes: KubeApiServer, opened: Opener, prefix: str
) -> None:
    leader, other = opened(), opened()
    granted = leader.campaign(SCOPE, epoch_floor=9)
    kubernetes.call("DELETE", f"{LEASES}/{lease_name(prefix, SCOPE)}")
    assert leader.holder(SCOPE) is None
    assert leader.renew(granted) is None
    successor = other.campaign(SCOPE, epoch_floor=granted.epoch)
    assert successor.epoch > granted.epoch
    assert leader.renew(granted) is None
    leader.release(granted)
    assert other.renew(successor) is not None


def test_the_epoch_outlives_leases_and_terms(opened: Opener, kubernetes: KubeApiServer, prefix: str) -> None:
    """In an annotation, so that it also goes on where transitions were set back by hand."""
    one, two = opened(), opened()
    one.release(one.campaign(SCOPE, epoch_floor=100))
    path = f"{LEASES}/{lease_name(prefix, SCOPE)}"
    document = kubernetes.call("GET", path)
    assert document["spec"]["leaseTransitions"] == 0
    assert document["spec"].get("holderIdentity", "") == ""
    assert two.campaign(SCOPE).epoch == 102
    assert kubernetes.call("GET", path)["spec"]["leaseTransitions"] == 1


def test_a_writer_that_has_read_an_older_lease_is_refused(
    kubernetes: KubeApiServer, opened: Opener, prefix: str
) -> None:
    """By the API server, whatever it would have written."""
    leader = opened()
    granted = leader.campaign(SCOPE)
    path = f"{LEASES}/{lease_name(prefix, SCOPE)}"
    before = kubernetes.call("GET", path)
    assert leader.renew(granted) is not None
    assert ApiServer(of_kubeconfig([kubernetes.admin])).replace(path, before, 5) is None
    assert leader.renew(granted) is not None


def test_a_holder_that_died_is_waited_out_and_succeeded(opened: Opener, clock: ManualClock) -> None:
    died = opened().campaign(SCOPE)
    began_s = clock.monotonic_s()
    assert campaign_patiently(opened(), SCOPE, clock).epoch > died.epoch
    assert TTL_S <= clock.monotonic_s() - began_s < TTL_S + 1


def test_the_clocks_of_hosts_count_for_nothing(opened: Opener, clock: ManualClock) -> None:
    """A day ahead or behind, a living holder is not succeeded and a silent one is, after a TTL."""
    leader, other = opened(), opened()
    leadership: Leadership | None = leader.campaign(SCOPE)
    for day_ms in (86_400_000, -2 * 86_400_000, 86_400_000):
        clock.set_wall(clock.wall_ms() + day_ms)
        assert leadership is not None
        leadership = leader.renew(leadership)
        assert not other.is_silent(SCOPE)
        clock.advance(TTL_S / 3)
    assert leadership is not None
    assert not other.is_silent(SCOPE)
    clock.advance(TTL_S)
    assert other.is_silent(SCOPE)
    assert other.campaign(SCOPE).epoch > leadership.epoch


def service_account(server: KubeApiServer, verbs: list[str]) -> str:
    """A new one in the namespace `default`, which may do just this with Leases; returns its token."""
    name = f"job-{uuid.uuid4().hex[:8]}"
    server.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}
    server.call("POST", f"{RBAC}/roles", {"metadata": {"name": name}, "rules": [rule]})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    server.call("POST", f"{RBAC}/rolebindings", binding)
    return server.token("default", name)


def pod(server: KubeApiServer, folder: Path, token: str) -> Any:
    """What a pod finds of its service account."""
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(token)
    (folder / "namespace").write_text("default")
    (folder / "ca.crt").write_text(server.nodes[0].ca.read_text())
    port = str(server.nodes[0].port)
    return in_pod({"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}, folder)


def a_whole_term(one: Coordination, two: Coordination) -> None:
    granted = one.campaign(SCOPE)
    assert two.holder(SCOPE) is not None
    assert one.renew(granted) is not None
    assert two.is_silent(SCOPE) is False
    successor = two.campaign(SCOPE, take_over=True)
    two.release(successor)
    assert one.campaign(SCOPE).epoch > successor.epoch


def test_an_election_needs_get_create_and_update_on_leases_and_nothing_else(
    kubernetes: KubeApiServer, opened: Opener, tmp_path: Path
) -> None:
    access = pod(kubernetes, tmp_path, service_account(kubernetes, ["get", "create", "update"]))
    a_whole_term(opened(access), opened(access))


@pytest.mark.parametrize("missing", ["get", "create", "update"])
def test_a_right_that_is_missing_is_said_with_the_way_out(
    kubernetes: KubeApiServer, opened: Opener, tmp_path: Path, missing: str
) -> None:
    verbs = [verb for verb in ("get", "create", "update") if verb != missing]
    access = pod(kubernetes, tmp_path, service_account(kubernetes, verbs))
    with pytest.raises(
        CoordinationError, match=rf"cannot {missing} resource.*Role with get, create and update"
    ):
        a_whole_term(opened(access), opened(access))


def test_cells_need_list_watch_and_delete_besides(
    kubernetes: KubeApiServer, opened: Opener, tmp_path: Path
) -> None:
    few = pod(kubernetes, tmp_path / "few", service_account(kubernetes, ["get", "create", "update"]))
    verbs = ["get", "create", "update", "list", "watch", "delete"]
    all_of_them = pod(kubernetes, tmp_path / "all", service_account(kubernetes, verbs))
    refused, cells = opened(few).cells(SCOPE), opened(all_of_them).cells(SCOPE)
    cell = cells.write("a", b"1", None)
    assert dict(cells.read_all("")) == {"a": cell}
    with pytest.raises(CoordinationError, match="cannot list resource"):
        refused.read_all("")
    with pytest.raises(CoordinationError, match="cannot delete resource"):
        refused.delete("a", cell.version)
    cells.delete("a", cell.version)


def test_a_token_that_is_replaced_is_used_from_the_next_request_on(
    kubernetes: KubeApiServer, opened: Opener, tmp_path: Path
) -> None:
    token = service_account(kubernetes, ["get", "create", "update"])
    leader = opened(pod(kubernetes, tmp_path, token))
    granted = leader.campaign(SCOPE)
    (tmp_path / "token").write_text("expired")
    with pytest.raises(CoordinationError, match="401"):
        leader.renew(granted)
    (tmp_path / "token").write_text(token)
    assert leader.renew(granted) is not None


def test_an_election_has_the_credentials_of_a_program_which_is_asked_again_when_the_server_refuses_them(
    kubernetes: KubeApiServer, opened: Opener, tmp_path: Path
) -> None:
    """As those of EKS, GKE and AKS are: its first token has expired, the second is kept."""
    version = "client.authentication.k8s.io/v1"
    for number, token in enumerate(("expired", service_account(kubernetes, ["get", "create", "update"]))):
        credential = {"kind": "ExecCredential", "apiVersion": version, "status": {"token": token}}
        (tmp_path / str(number)).write_text(json.dumps(credential))
    ran, program = tmp_path / "ran", tmp_path / "get-token"
    program.write_text(f"#!/bin/sh\ncd {tmp_path}\ncat $(wc -c <ran)\nprintf . >>ran\n")
    program.chmod(0o700)
    ran.touch()
    user = {"exec": {"apiVersion": version, "command": str(program), "interactiveMode": "Never"}}
    leader = opened(of_kubeconfig([kubernetes.kubeconfig(tmp_path.name, user)]))
    granted = leader.campaign(SCOPE)
    assert leader.renew(granted) is not None
    assert ran.read_text() == ".."


def test_a_client_without_rights_or_of_another_authority_is_refused_in_words(
    kubernetes: KubeApiServer, opened: Opener, tmp_path: Path
) -> None:
    with pytest.raises(CoordinationError, match='User "nobody" cannot get resource "leases"'):
        opened(of_kubeconfig([kubernetes.nobody])).campaign(SCOPE)
    own = kubernetes.admin.read_text().replace(
        str(kubernetes.nodes[0].ca), str(kubernetes.nodes[0].keys / "admin.crt")
    )
    (tmp_path / "config").write_text(own)
    with pytest.raises(CoordinationUnreachable, match="certificate verify failed"):
        opened(of_kubeconfig([tmp_path / "config"])).campaign(SCOPE)


def test_certificates_that_are_replaced_are_used_after_a_failure(
    kubernetes: KubeApiServer, opened: Opener, tmp_path: Path
) -> None:
    """The authority of the file was not the server's, and then it was."""
    ca = tmp_path / "ca.crt"
    ca.write_text((kubernetes.nodes[0].keys / "admin.crt").read_text())
    path = tmp_path / "config"
    path.write_text(kubernetes.admin.read_text().replace(str(kubernetes.nodes[0].ca), str(ca)))
    contender = opened(of_kubeconfig([path]))
    with pytest.raises(CoordinationUnreachable):
        contender.holder(SCOPE)
    ca.write_text(kubernetes.nodes[0].ca.read_text())
    assert contender.holder(SCOPE) is None


def test_a_namespace_that_is_not_there_is_said(kubernetes: KubeApiServer, clock: ManualClock) -> None:
    own = KubernetesCoordination(
        ApiServer(of_kubeconfig([kubernetes.admin])), clock, ttl_s=TTL_S, namespace="nowhere"
    )
    with pytest.raises(
        CoordinationError, match=r'"nowhere" not found\. Create the namespace, or name another one'
    ):
        own.campaign(SCOPE)
    own.close()


def test_a_killed_api_server_keeps_leases_and_cells(kubernetes: KubeApiServer, opened: Opener) -> None:
    """And the clients find it again, on connections that it has cut."""
    leader, other = opened(), opened()
    granted = leader.campaign(SCOPE)
    cell = leader.cells(SCOPE).write("a", b"1", None)
    kubernetes.kill()
    try:
        with pytest.raises(CoordinationUnreachable):
            other.holder(SCOPE)
    finally:
        kubernetes.ensure_running()
    assert other.leading_epoch(SCOPE) == granted.epoch
    assert leader.renew(granted) is not None
    assert other.cells(SCOPE).read("a") == cell


def test_a_renewal_on_a_server_that_stands_still_is_no_longer_than_it_says(
    kubernetes: KubeApiServer, opened: Opener
) -> None:
    leader = opened()
    granted = leader.campaign(SCOPE)
    machine = SystemClock()
    kubernetes.pause()
    try:
        began_s = machine.monotonic_s()
        assert leader.renew(granted) == granted
        took_s = machine.monotonic_s() - began_s
    finally:
        kubernetes.resume()
    assert took_s < TTL_S
