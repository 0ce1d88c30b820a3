"""How the API server of Kubernetes and its user are found: a pod's service account, or a kubeconfig."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from grete.config.settings import Settings
from grete.coordination.kubernetes.access import find_access, find_namespace, in_pod, of_kubeconfig
from grete.errors import ConfigError, CoordinationError

SERVER = "https://kubernetes.example:6443"
OLD = {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "aws"}
GONE = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such"}


def kubeconfig(path: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}}],
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def settings(**values: str) -> Any:
    return Settings.of(
        {f"job.coordinator.kubernetes.{key}": value for key, value in values.items()}
    ).kubernetes


def test_a_pod_has_its_service_account_whose_token_is_read_each_time(tmp_path: Path) -> None:
    for name, text in {"token": "first\n", "namespace": "jobs\n", "ca.crt": "pem"}.items():
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = in_pod(environment, tmp_path)
    assert access is not None
    assert (access.server, access.namespace) == ("https://10.96.0.1:443", "jobs")
    assert access.credential().headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second")
    assert access.credential().headers() == {"Authorization": "Bearer second"}
    assert in_pod({"KUBERNETES_SERVICE_HOST": "::1"}, tmp_path).server == "https://[::1]:443"  # type: ignore[union-attr]
    assert in_pod({}, tmp_path) is None
    assert in_pod(environment, tmp_path / "nowhere") is None


def test_a_kubeconfig_gives_the_server_user_and_namespace_of_its_current_context(tmp_path: Path) -> None:
    access = of_kubeconfig([kubeconfig(tmp_path / "config")])
    assert (access.server, access.namespace) == (SERVER, "jobs")
    assert access.credential().headers() == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(access)


def test_paths_in_a_kubeconfig_begin_at_the_file(tmp_path: Path) -> None:
    user = {"tokenFile": "own/token"}
    path = kubeconfig(tmp_path / "kube" / "config", user=user, **{"certificate-authority": "ca.pem"})
    (tmp_path / "kube" / "own").mkdir()
    (tmp_path / "kube" / "own" / "token").write_text("from-the-file")
    access = of_kubeconfig([path])
    assert access.credential().headers() == {"Authorization": "Bearer from-the-file"}
    assert access.ca is not None
    assert access.ca.path == tmp_path / "kube" / "ca.pem"


def test_certificates_may_stand_in_the_kubeconfig_itself(tmp_path: Path) -> None:
    data = base64.b64encode(b"the authority").decode()
    access = of_kubeconfig([kubeconfig(tmp_path / "config", **{"certificate-authority-data": data})])
    assert access.ca is not None
    assert access.ca.read() == "the authority"
    with pytest.raises(ConfigError, match="certificate-authority-data is not base64"):
        of_kubeconfig([kubeconfig(tmp_path / "bad", **{"certificate-authority-data": "?"})])


def test_of_several_kubeconfigs_the_first_that_says_it_wins(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.write_text(yaml.safe_dump({"current-context": "here"}))
    first, second = kubeconfig(tmp_path / "1"), kubeconfig(tmp_path / "2", server="https://other.example")
    assert of_kubeconfig([context, first, second]).server == SERVER


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({"exec": {"command": "aws"}}, {}, "exec has apiVersion ''.*v1beta1 are spoken"),
        ({"exec": "aws"}, {}, "exec.* is none: Expected `object`, got `str`"),
        ({"exec": {**GONE, "args": "get-token"}}, {}, r"Expected `array \| null`, got `str` - at `\$.args`"),
        ({"exec": {**GONE, "env": ["A=b"]}}, {}, r"Expected `object`, got `str` - at `\$.env\[0\]`"),
        ({"exec": GONE}, {"extensions": ["x"]}, "extension.*Expected `object`, got `str`"),
        ({"client-certificate-data": "YQ=="}, {}, "without the other one"),
        ({"exec": OLD}, {}, "v1alpha1.*let the cluster's own tool write the kubeconfig again"),
        (
            {"exec": {**GONE, "installHint": "Install kubelogin."}},
            {},
            "'no-such'.*not there. Install kubelogin.",
        ),
        ({"exec": GONE}, {}, "'no-such', which is not there. Install it, or add its folder to PATH"),
        ({"exec": {**GONE, "interactiveMode": "Always"}}, {}, "nobody sits in front of a job"),
        ({"auth-provider": {"name": "gcp"}}, {}, "Kubernetes has given these up"),
        ({"username": "ann", "password": "x"}, {}, "take no passwords"),
        ({"token": "t", "as": "root"}, {}, "acts for nobody else"),
        ({}, {"insecure-skip-tls-verify": True}, "set certificate-authority"),
        ({}, {"proxy-url": "http://proxy"}, "goes through no proxy"),
        ({}, {"tls-server-name": "other"}, "the server's own address"),
        ({}, {"server": "http://plain.example"}, "name one by https"),
    ],
)
def test_a_kubeconfig_that_asks_for_what_is_not_done_is_refused_with_the_way_out(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        of_kubeconfig([kubeconfig(tmp_path / "config", user=user, **cluster)])


def test_what_a_kubeconfig_lacks_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")
    with pytest.raises(ConfigError, match="no context 'there'"):
        of_kubeconfig([path], "there")
    path.write_text("- a list")
    with pytest.raises(ConfigError, match="is no kubeconfig"):
        of_kubeconfig([path])
    path.write_text("contexts: []")
    with pytest.raises(ConfigError, match="no current-context"):
        of_kubeconfig([path])


def test_a_certificate_that_is_none_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    path = kubeconfig(tmp_path / "config", **{"certificate-authority": "ca.pem"})
    access = of_kubeconfig([path])
    with pytest.raises(CoordinationError, match=f"{path}.* certificate or key is none"):
        access.tls(access.credential())


def test_the_kubeconfig_is_the_configurations_else_that_of_the_environment(tmp_path: Path) -> None:
    own = kubeconfig(tmp_path / "own")
    other = kubeconfig(tmp_path / "other", server="https://other.example")
    environment = {"KUBECONFIG": f"{tmp_path / 'missing'}:{other}"}
    assert find_access(settings(kubeconfig=str(own)), environment).server == SERVER
    assert find_access(settings(), environment).server == "https://other.example"
    with pytest.raises(ConfigError, match=r"no API server to elect leaders on.*job\.coordinator\.kubernetes"):
        find_access(settings(), {"KUBECONFIG": str(tmp_path / "missing")})


def test_the_namespace_is_found_without_credentials_and_without_a_kubeconfig(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", user={"exec": GONE, "username": "ann"}, server="http://plain")
    assert find_namespace(settings(kubeconfig=str(path)), {}) == "jobs"
    assert find_namespace(settings(), {"KUBECONFIG": str(path)}) == "jobs"
    assert find_namespace(settings(), {"KUBECONFIG": str(tmp_path / "missing")}) is None
    with pytest.raises(ConfigError, match="no context 'there'"):
        find_namespace(settings(context="there"), {"KUBECONFIG": str(path)})


@pytest.mark.parametrize("wrong", ["Grete", "-jobs", "jobs-", "a.b", "a" * 64, "ä"])
def test_names_that_kubernetes_does_not_take_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="it is no name on Kubernetes"):
        _ = settings(**{"lease.prefix": wrong}).lease_prefix


@pytest.mark.parametrize("token", ["s3 cret", "s3cret\nX-Other: 1", "s\u00e9cret"])
def test_a_token_that_no_header_may_hold_is_refused_and_not_told(tmp_path: Path, token: str) -> None:
    with pytest.raises(CoordinationError, match="its token is none") as refused:
        of_kubeconfig([kubeconfig(tmp_path / "config", user={"token": token})])
    assert "cret" not in str(refused.value)
    (tmp_path / "token").write_text(token)
    access = of_kubeconfig([kubeconfig(tmp_path / "config", user={"tokenFile": "token"})])
    with pytest.raises(CoordinationError, match="its token is none") as refused:
        access.credential()
    assert "cret" not in str(refused.value)


def test_white_space_around_a_token_is_none_of_it(tmp_path: Path) -> None:
    access = of_kubeconfig([kubeconfig(tmp_path / "config", user={"token": "secret\n"})])
    assert access.credential().headers() == {"Authorization": "Bearer secret"}


def test_an_authority_that_is_empty_is_refused_and_not_replaced_by_those_of_the_machine(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.crt").write_text("\n")
    access = of_kubeconfig([kubeconfig(tmp_path / "config", **{"certificate-authority": "ca.crt"})])
    with pytest.raises(CoordinationError, match="the certificate authority is empty"):
        access.tls(access.credential())
