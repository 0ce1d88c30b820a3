"""Keys of ZooKeeper, where leaders are elected there: addresses, time limits, login, TLS."""

from __future__ import annotations

from grete.config.choices import SaslMechanism
from grete.config.key import BOOLEAN, DURATION, PATH, TEXT, ChangeClass, Key, one_of

_CHANGE = ChangeClass.RESTART_CONTAINER
_ZK = "job.coordinator.zk"

CONNECT = Key(
    f"{_ZK}.connect",
    TEXT,
    None,
    _CHANGE,
    "ZooKeeper servers for `job.coordinator.factory=zookeeper`, `host:port[,host:port][/path]`.",
)
SESSION = Key(
    f"{_ZK}.session.timeout.ms",
    DURATION,
    None,
    _CHANGE,
    "A coordinator that ZooKeeper has not heard of for so long has no session any more. Samza's default is 30000.",
    unit="ms",
    default_doc="`job.coordinator.lease.ttl.ms`",
)
CONNECTION = Key(
    f"{_ZK}.connection.timeout.ms", DURATION, "60000", _CHANGE, "Time to connect to ZooKeeper.", unit="ms"
)
USER = Key(f"{_ZK}.user", TEXT, None, _CHANGE, "User at ZooKeeper; the nodes that are made are then its own.")
PASSWORD = Key(
    f"{_ZK}.password",
    TEXT,
    None,
    _CHANGE,
    "Its password; write it as `${env:NAME}` or `${file:/path}`.",
    is_secret=True,
)
MECHANISM = Key(
    f"{_ZK}.sasl.mechanism",
    one_of(SaslMechanism),
    None,
    _CHANGE,
    "How the user gets in by SASL. GSSAPI takes the Kerberos tickets of the process: no user, no password.",
    default_doc="ZooKeeper's own scheme `digest`",
)
TLS = Key(f"{_ZK}.ssl.enabled", BOOLEAN, "false", _CHANGE, "Whether the servers are reached by TLS.")
TRUSTSTORE = Key(
    f"{_ZK}.ssl.truststore.location",
    PATH,
    None,
    _CHANGE,
    "A PEM file of authorities that are trusted beside those of the machine.",
)
KEYSTORE = Key(
    f"{_ZK}.ssl.keystore.location", PATH, None, _CHANGE, "A PEM file of our own certificate and its key."
)
KEYSTORE_PASSWORD = Key(
    f"{_ZK}.ssl.keystore.password", TEXT, None, _CHANGE, "What opens that key.", is_secret=True
)
VERIFY_HOSTNAME = Key(
    f"{_ZK}.ssl.hostname-verification",
    BOOLEAN,
    "true",
    _CHANGE,
    "Whether a server's certificate has to be for the name it is reached by.",
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
