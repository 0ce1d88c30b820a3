"""Spark's own figures of a running pipeline, in `grete status` and `/metrics`, and the traces of its batches."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.otlp_receiver import OtlpReceiver

from grete.http_client import read_token
from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.spark


def test_status_and_metrics_of_a_running_pipeline_have_them(counting_pipelines: tuple[Any, Any]) -> None:
    job, _ = counting_pipelines
    job.fill(500)
    application = job.config.parent / "counter.py"
    lines, given = application.read_text(), "[frame] = inputs.values()\n"
    expecting = "        frame = self.context.expect(frame, \"partition = 0\", name='first')\n"
    application.write_text(lines.replace(given, given + expecting))
    with (
        OtlpReceiver() as receiver,
        subprocess.Popen(
            [*job.command("run", "--quiet"), "--set", f"job.traces.endpoint={receiver.endpoint}"],
            env=job.environment(),
            stderr=subprocess.DEVNULL,
        ) as running,
    ):
        try:
            found: dict[str, Any] = {}

            def is_there() -> bool:
                command = [*job.command("status"), "-o", "json"]
                done = subprocess.run(
                    command, env=job.environment(), capture_output=True, text=True, timeout=patient(60)
                )
                found.update(json.loads(done.stdout)[0] if done.returncode == 0 else {})
                spark = (found.get("spark") or {}).get("0") or {}
                return bool(spark.get("query", {}).get("input-rows") == 500)

            eventually(is_there, "status has the rows that Spark has read")
            spark = found["spark"]["0"]
            assert spark["operator.0.stateStoreSave"]["state-rows"] == 50
            assert spark["duration"]["triggerExecution-ms"] > 0
            assert spark["source.local.in"]["input-rows"] == 500
            counted = found["expectations"]["first"]
            assert counted["checked"] == 500
            assert 0 < counted["failed"] < 500
            said = subprocess.run(
                job.command("status"), env=job.environment(), capture_output=True, text=True
            )
            assert f"first: {counted['failed']} of 500 not met" in said.stdout
            token = read_token(Path(found["token_file"]))
            metrics = httpx2.get(f"{found['url']}/metrics", headers={"Authorization": f"Bearer {token}"}).text
            of_query = 'job="counter-1",container="0",task="",group="spark.query"'
            assert f'grete_counter_input_rows_total{{{of_query},name="input-rows"}} 500' in metrics
            eventually(lambda: receiver.named("commit"), "its batch is traced")
            [batch] = [one for one in receiver.named("batch") if one.attributes["grete.batch.records"]]
            assert (batch.process, batch.attributes["grete.batch.records"]) == ("samza-container-0", 500)
            assert 0 < batch.ended_ms - batch.began_ms < 60_000
            [start] = receiver.named("start")
            assert start.parent == receiver.named("submit")[0].id
        finally:
            running.terminate()
            running.wait(patient(60))
