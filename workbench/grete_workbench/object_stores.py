"""Object stores on loopback for tests, built by `make nightly`: a gateway that speaks S3, one that speaks Google's.

Both keep their buckets in a folder, so that a test can look at objects, and harm them, behind the gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grete.http_answers import HTTPError, connections, whole_answer
from grete.testing.server_cluster import ServerCluster, ServerFailed, ServerNode, jars_directory

PROGRAM = jars_directory("GRETE_OBJECT_STORES", "object-stores-1") / "object-stores"
KEY = {"AWS_ACCESS_KEY_ID": "grete", "AWS_SECRET_ACCESS_KEY": "only-of-the-tests"}
"""With which the S3 gateway wants requests to be signed."""
_CALL_S = 10.0


def of_spark(store: ObjectStore) -> dict[str, str]:
    """Settings by which Spark reaches a store that speaks S3, as `s3a://BUCKET`; jars of `make services`."""
    jars = sorted(map(str, jars_directory("GRETE_SPARK_S3_JARS", "spark-s3-3.5.0").glob("*.jar")))
    own = {
        "endpoint": f"http://{store.bootstrap}",
        "endpoint.region": "eu-central-1",
        "path.style.access": "true",
        "access.key": KEY["AWS_ACCESS_KEY_ID"],
        "secret.key": KEY["AWS_SECRET_ACCESS_KEY"],
    }
    return {"spark.jars": ",".join(jars)} | {f"spark.hadoop.fs.s3a.{name}": own[name] for name in own}


@dataclass(frozen=True, slots=True)
class ObjectStoreNode(ServerNode):
    """The gateway and where it listens."""

    port: int

    @property
    def buckets(self) -> Path:
        """A folder for each."""
        return self.directory / "buckets"


class ObjectStore(ServerCluster[ObjectStoreNode]):
    """One gateway; `settings` say which: `speaks` is `s3` or `gs`."""

    PORTS_PER_NODE: ClassVar[int] = 1

    @property
    def bootstrap(self) -> str:
        """Host and port."""
        [node] = self.nodes
        return f"127.0.0.1:{node.port}"

    def address(self, bucket: str, path: str) -> str:
        """The place as Arrow's clients have it."""
        where = f"endpoint_override={self.bootstrap}&scheme=http"
        if self._settings["speaks"] == "gs":
            return f"gs://anonymous@{bucket}/{path}?{where}"
        return f"s3://{bucket}/{path}?region=eu-central-1&{where}"

    def make_bucket(self, bucket: str) -> Path:
        """A new one; returns its folder."""
        [node] = self.nodes
        if self._settings["speaks"] == "gs":
            url = f"http://{self.bootstrap}/storage/v1/b?project=grete"
            made = whole_answer(connections(), "POST", url, _CALL_S, document={"name": bucket})
            assert made.status == 200, "a bucket is made"
        else:
            (node.buckets / bucket).mkdir()
        return node.buckets / bucket

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> ObjectStoreNode:
        return ObjectStoreNode(number, directory, *ports)

    def _prepare(self, node: ObjectStoreNode) -> None:
        if not PROGRAM.exists():
            raise ServerFailed(
                f"no object stores in {PROGRAM.parent}: run SERVICES=object_stores make services"
            )
        node.buckets.mkdir(exist_ok=True)

    def _command(self, node: ObjectStoreNode) -> list[str]:
        secrets = [f"{name}={value}" for name, value in KEY.items()]
        return [
            "/usr/bin/env",
            *secrets,
            str(PROGRAM),
            self._settings["speaks"],
            str(node.port),
            str(node.buckets),
        ]

    def _is_ready(self, node: ObjectStoreNode) -> bool:
        with suppress(HTTPError):
            # whatever it is: Google's has no such page
            whole_answer(connections(), "GET", f"http://127.0.0.1:{node.port}/health", _CALL_S)
            return True
        return False
