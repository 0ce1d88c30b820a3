"""kazoo, imported in one place."""

from __future__ import annotations

from grete.errors import MissingExtra

try:
    from kazoo.client import KazooClient as KazooClient
    from kazoo.exceptions import AuthFailedError as AuthFailedError
    from kazoo.exceptions import BadVersionError as BadVersionError
    from kazoo.exceptions import ConnectionDropped as ConnectionDropped
    from kazoo.exceptions import ConnectionLoss as ConnectionLoss
    from kazoo.exceptions import InvalidACLError as InvalidACLError
    from kazoo.exceptions import KazooException as KazooException
    from kazoo.exceptions import NoAuthError as NoAuthError
    from kazoo.exceptions import NodeExistsError as NodeExistsError
    from kazoo.exceptions import NoNodeError as NoNodeError
    from kazoo.exceptions import NotEmptyError as NotEmptyError
    from kazoo.exceptions import OperationTimeoutError as OperationTimeoutError
    from kazoo.exceptions import RequestTimeoutError as RequestTimeoutError
    from kazoo.exceptions import RolledBackError as RolledBackError
    from kazoo.exceptions import RuntimeInconsistency as RuntimeInconsistency
    from kazoo.exceptions import SASLException as SASLException
    from kazoo.exceptions import SessionClosedRequireSaslError as SessionClosedRequireSaslError
    from kazoo.exceptions import SessionExpiredError as SessionExpiredError
    from kazoo.exceptions import SessionMovedError as SessionMovedError
    from kazoo.handlers.threading import KazooTimeoutError as KazooTimeoutError
    from kazoo.protocol.states import KeeperState as KeeperState
    from kazoo.protocol.states import ZnodeStat as ZnodeStat
    from kazoo.security import CREATOR_ALL_ACL as CREATOR_ALL_ACL
    from kazoo.security import OPEN_ACL_UNSAFE as OPEN_ACL_UNSAFE
except ImportError as error:
    raise MissingExtra("kazoo", "zookeeper") from error
