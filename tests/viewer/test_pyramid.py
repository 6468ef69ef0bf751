"""The pyramid against the raw samples: no extreme is missing, none is invented, and there are few points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilserver.viewer.pyramid import CHUNK, Pyramid


def signal(count: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Noise with rare spikes, gaps without a number, and infinities."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=count)
    for value in (1e6, -1e6, np.inf, -np.inf):
        values[generator.integers(0, count, 2)] = value
    values[generator.integers(0, count) :][:500] = np.nan
    return values


@given(st.data())
def test_each_group_has_the_extremes_of_its_samples_and_no_other(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 63, 64, 65, 5_000, 200_000]), "count")
    values = signal(count, data.draw(st.integers(0, 5), "seed"))
    start = data.draw(st.integers(0, count - 1), "start")
    stop = data.draw(st.integers(start + 1, count), "stop")
    most = data.draw(st.sampled_from([1, 2, 100, 1000]), "most")
    outline = Pyramid(lambda a, b: values[a:b], count).outline(start, stop, most)
    if outline.group == 1:
        assert len(outline.low) == stop - start <= 2 * most
        np.testing.assert_array_equal(outline.low, values[start:stop])
        return
    assert 2 * len(outline.low) <= 2 * (most + 2)
    assert outline.first[0] <= start
    assert outline.first[-1] + outline.group >= stop
    np.testing.assert_array_equal(np.diff(outline.first), outline.group)
    for first, low, high in zip(outline.first, outline.low, outline.high, strict=True):
        samples = values[first : first + outline.group]
        samples = samples[~np.isnan(samples)]
        expected = (samples.min(), samples.max()) if len(samples) else (np.nan, np.nan)
        np.testing.assert_array_equal((low, high), expected)


def test_groups_do_not_depend_on_where_the_section_begins() -> None:
    """A picture that is moved must not flicker."""
    values = signal(100_000, 1)
    pyramid = Pyramid(lambda a, b: values[a:b], len(values))
    one, other = (pyramid.outline(start, start + 60_000, 500) for start in (10_000, 10_037))
    common = np.intersect1d(one.first, other.first)
    assert len(common) >= len(one.first) - 1 > 300
    for outline in (one, other):
        assert outline.group == one.group
    np.testing.assert_array_equal(one.low[np.isin(one.first, common)], other.low[np.isin(other.first, common)])


def test_it_is_built_in_parts_and_is_small() -> None:
    """The samples are read once in chunks, an overview reads none, and a section only its own."""
    values = np.random.default_rng(0).normal(size=3 * CHUNK + 17)
    reads: list[tuple[int, int]] = []

    def read(start: int, stop: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        reads.append((start, stop))
        return values[start:stop]

    pyramid = Pyramid(read, len(values))
    assert max(stop - start for start, stop in reads) == CHUNK
    assert sum(stop - start for start, stop in reads) == len(values)
    assert pyramid.nbytes < values.nbytes / 25
    reads.clear()
    whole = pyramid.outline(0, len(values), 1000)
    assert reads == []
    assert (np.nanmin(whole.low), np.nanmax(whole.high)) == (values.min(), values.max())
    pyramid.outline(70_000, 71_000, 1000)
    assert reads == [(70_000, 71_000)]
    pyramid.outline(70_000, 100_000, 1000)
    assert all(stop - start <= 31_000 for start, stop in reads)


@pytest.mark.parametrize(("start", "stop"), [(5, 5), (10, 20), (-3, 0)])
def test_a_section_without_samples_is_empty(start: int, stop: int) -> None:
    pyramid = Pyramid(lambda a, b: np.zeros(b - a), 10)
    assert len(pyramid.outline(start, stop, 100).low) == 0


def test_an_empty_signal_has_an_empty_outline() -> None:
    assert len(Pyramid(lambda a, b: np.zeros(b - a), 0).outline(0, 10, 100).low) == 0
