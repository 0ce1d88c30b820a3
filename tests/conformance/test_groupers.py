"""The contracts of groupers on all that there are."""

from __future__ import annotations

import pytest

from grete.config import aliases
from grete.config.settings import Settings
from grete.grouping.ssp import KEY, SspGrouper, ssp_grouper
from grete.grouping.task_names import TaskNameGrouper, task_name_grouper
from grete.testing.conformance.grouping import SspGrouperConformance, TaskNameGrouperConformance


class TestGroupersBySsp(SspGrouperConformance):
    @pytest.fixture(params=["GroupByPartitionFactory", "GroupBySystemStreamPartitionFactory"])
    def grouper(self, request: pytest.FixtureRequest) -> SspGrouper:
        return ssp_grouper(Settings.of({KEY: request.param}))


class TestAllSspToSingleTask(SspGrouperConformance):
    READS_ALL_IN_EACH_TASK = True

    @pytest.fixture
    def grouper(self) -> SspGrouper:
        return ssp_grouper(Settings.of({KEY: "AllSspToSingleTaskGrouperFactory"}))


class TestTaskNameGroupers(TaskNameGrouperConformance):
    @pytest.fixture(params=aliases.known_names(aliases.TASK_GROUPERS))
    def grouper(self, request: pytest.FixtureRequest) -> TaskNameGrouper:
        return task_name_grouper(Settings.of({"task.name.grouper.factory": request.param}))
