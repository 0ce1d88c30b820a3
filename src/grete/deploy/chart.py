"""A deployment on Kubernetes as a Helm chart: the objects that `grete deploy apply` makes, with values where
installations differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from grete import __version__
from grete.config.redact import redact
from grete.config.rules.fingerprint import digest
from grete.deploy.deployment import Deployment
from grete.deploy.kubernetes import without_secrets_of_the_template
from grete.deploy.manifests import manifests, shipped_files
from grete.errors import ConfigError

IMAGE = "grete-image-of-the-values"
"""The image that a deployment has whose chart is to be written."""
_NAMESPACE = "grete-namespace-of-the-release"
_REVISION = "grete-revision"
_PLACES = {
    _NAMESPACE: "{{ .Release.Namespace }}",
    IMAGE: "{{ .Values.image }}",
    _REVISION: "{{ .Release.Revision }}",
}
_ID_LENGTH = 10


def write_chart(deployment: Deployment, image: str, folder: Path, version: str) -> list[Path]:
    """Write the chart of a deployment of `IMAGE` into a folder, new or of an earlier one; returns the files.

    The image, by default this one, and the secrets that neither the pod template nor the configuration has are values
    of the chart; no secret is in it. An unchanged configuration gives the same chart. Each `helm upgrade` is a
    deployment.

    Raises:
        ConfigError: as `manifests`; the configuration has secrets themselves; or the folder has something else.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "Chart.yaml").is_file():
        raise ConfigError(f"{folder} is no chart, and not empty: name another folder")
    raw = deployment.settings.raw
    told = sorted(key for key, _ in set(redact(raw).items()) - set(raw.items()))
    if told:
        raise ConfigError(
            f"{', '.join(told)}: a chart is kept where many read it, and would have the value. Write ${{env:NAME}}: "
            f"NAME is a value of the chart then, or comes from a Secret that the pod template names"
        )
    deployment = _as_in_a_chart(without_secrets_of_the_template(deployment))
    made = [_templated(one, deployment) for one in manifests(deployment, _NAMESPACE, {})]
    values: dict[str, Any] = {"image": image}
    if deployment.secrets:
        values["secrets"] = dict.fromkeys(deployment.secrets, "")
    chart = {
        "apiVersion": "v2",
        "name": deployment.name,
        "description": f"The job {deployment.job.shown}",
        "type": "application",
        "version": version,
        "appVersion": __version__,
    }
    templates = folder / "templates"
    templates.mkdir(parents=True, exist_ok=True)
    files = {
        folder / "Chart.yaml": yaml.safe_dump(chart, sort_keys=False),
        folder / "values.yaml": yaml.safe_dump(values, sort_keys=False),
        templates / "job.yaml": "---\n".join(made),
    }
    for path, text in files.items():
        path.write_text(text)
    return list(files)


def _as_in_a_chart(deployment: Deployment) -> Deployment:
    """With a number that follows from what is deployed and from the release."""
    told = [sorted(deployment.settings.raw.items()), deployment.words, __version__]
    return replace(deployment, id=f"{digest(told)[:_ID_LENGTH]}-{_REVISION}")


def _templated(made: Mapping[str, Any], deployment: Deployment) -> str:
    secrets = ""
    if made["kind"] == "Secret":
        kept = {key: value for key, value in made.items() if key not in ("data", "immutable")}
        made = {**kept, "stringData": shipped_files(deployment, _NAMESPACE)}
        secrets = "".join(
            f'  {name}: {{{{ required "secrets.{name} is not set" .Values.secrets.{name} | quote }}}}\n'
            for name in deployment.secrets
        )
    text = yaml.safe_dump(made, sort_keys=False, width=1_000_000).replace("{{", '{{ "{{" }}')
    for place, template in _PLACES.items():
        text = text.replace(place, template)
    return text + secrets
