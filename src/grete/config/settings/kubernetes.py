"""Settings of leader election on Kubernetes."""

from __future__ import annotations

from grete.config.key_tables import kubernetes as keys
from grete.config.settings.section import OptionalSetting, Section, Setting


class KubernetesSettings(Section):
    """`job.coordinator.kubernetes.*`."""

    namespace = OptionalSetting(keys.NAMESPACE)
    lease_prefix = Setting(keys.LEASE_PREFIX)
    kubeconfig = OptionalSetting(keys.KUBECONFIG)
    context = OptionalSetting(keys.CONTEXT)
