"""The fast way computes the same as the plain one: HashMap order, the model's JSON, CRC-32C."""

from __future__ import annotations

from random import Random

import google_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.model.ids import ContainerId, SystemStreamPartition, TaskName
from grete.model.job import ContainerModel, JobModel, TaskMode, TaskModel
from grete.wire import jackson_bytes
from grete.wire.java_hash import JavaHashMap, string_hash
from grete.wire.job_model_json import containers_document, document, encode, encode_containers

texts = st.text(st.characters(exclude_categories=()), max_size=12)
ssps = st.builds(SystemStreamPartition, texts, texts, st.integers(0, 2**31 - 1), st.integers(-1, 3))
task_models = st.builds(
    TaskModel,
    texts.map(TaskName),
    st.lists(ssps, max_size=3).map(tuple),
    st.integers(0, 99),
    st.sampled_from(TaskMode),
)
containers = st.builds(
    ContainerModel, texts.map(ContainerId), st.dictionaries(texts.map(TaskName), task_models, max_size=4)
)
models = st.builds(
    JobModel,
    st.dictionaries(texts, texts, max_size=4),
    st.dictionaries(texts.map(ContainerId), containers, max_size=3),
    st.integers(-1, 9),
)


@settings(deadline=None)
@given(models)
def test_the_models_json_is_that_of_its_document(model: JobModel) -> None:
    assert encode_containers(model) == jackson_bytes.dumps(containers_document(model))
    assert encode(model) == jackson_bytes.dumps(document(model))


@settings(deadline=None)
@given(st.integers(0, 700), st.integers(1, 40), st.integers(1, 1 << 31), st.randoms())
def test_a_map_filled_at_once_is_the_map_filled_key_by_key(
    count: int, distinct: int, step: int, random: Random
) -> None:
    """Few distinct hashes with a wide step make long bins: trees, and tables that double early."""
    keys = [f"k{i % max(1, count - 3)}" for i in range(count)]
    random.shuffle(keys)

    def hash_of(key: str) -> int:
        return int(key[1:]) * step if distinct > 20 else (string_hash(key) % distinct) * step

    one_by_one: JavaHashMap[str] = JavaHashMap(hash_of=hash_of)
    one_by_one.put_each(keys)
    at_once: JavaHashMap[str] = JavaHashMap(hash_of=hash_of)
    at_once.put_first(keys)
    assert list(at_once) == list(one_by_one)
    for key in [*keys[::3], "k99999", *keys[:5]]:
        for made in (at_once, one_by_one):
            made.remove(key)
            made.put(key + "0")
    assert list(at_once) == list(one_by_one)


@given(texts | st.text("abc 0123456789", min_size=60, max_size=70))
def test_a_strings_hash_is_javas(text: str) -> None:
    data = text.encode("utf-16-le", "surrogatepass")
    expected = 0
    for low, high in zip(data[::2], data[1::2], strict=True):
        expected = (expected * 31 + (low | high << 8)) % 2**32
    assert string_hash(text) % 2**32 == expected


@settings(deadline=None, max_examples=20)
@given(st.binary(max_size=5_000), st.integers(1, 9))
def test_the_checksum_is_the_polynomials_bit_by_bit(data: bytes, times: int) -> None:
    """Bit by bit, as the polynomial is defined."""
    data = data * times
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert google_crc32c.value(data) == crc ^ 0xFFFFFFFF
