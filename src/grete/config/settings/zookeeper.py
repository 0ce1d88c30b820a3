"""Settings of ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

from grete.config.choices import SaslMechanism
from grete.config.key_tables import zookeeper as keys
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.config.values import valid_value_of


class ZooKeeperSection(Section):
    """`job.coordinator.zk.*`, as far as it is about the servers. References to secrets stay as they are."""

    connect = OptionalSetting(keys.CONNECT)
    session_ms = OptionalSetting(keys.SESSION)
    """None: as long as the lease."""
    connection_ms = Setting(keys.CONNECTION)
    user = OptionalSetting(keys.USER)
    password = OptionalSetting(keys.PASSWORD)
    mechanism = OptionalSetting(keys.MECHANISM)
    uses_tls = Setting(keys.TLS)
    truststore = OptionalSetting(keys.TRUSTSTORE)
    keystore = OptionalSetting(keys.KEYSTORE)
    keystore_password = OptionalSetting(keys.KEYSTORE_PASSWORD)
    verifies_hostname = Setting(keys.VERIFY_HOSTNAME)

    def problems(self) -> Iterator[str]:
        """What is missing, with the way out."""
        if not (self.connect or "").strip():
            yield (
                f"Missing {keys.CONNECT.name} configuration: name the ZooKeeper servers, "
                "host:port[,host:port][/path]"
            )
        mechanism = valid_value_of(self.raw, keys.MECHANISM)  # another rule looks at the word
        if mechanism is SaslMechanism.GSSAPI and (self.user or self.password):
            yield (
                f"{keys.MECHANISM.name}={mechanism.value} takes the user of the process's tickets: remove "
                f"{keys.USER.name} and {keys.PASSWORD.name}"
            )
        elif bool(self.user) != bool(self.password):
            yield f"a login at ZooKeeper needs both {keys.USER.name} and {keys.PASSWORD.name}"
        if mechanism is SaslMechanism.DIGEST_MD5 and not self.user:
            yield f"{keys.MECHANISM.name}={mechanism.value} needs {keys.USER.name} and {keys.PASSWORD.name}"
