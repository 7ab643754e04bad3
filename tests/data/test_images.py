from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from noisewright.data import ImageSet, Provenance
from noisewright.types import InputError


def image_set(count=12, groups=4, labels=True):
    """Images whose pixels, label and group are all the row's number."""
    rows = torch.arange(count)
    provenance = Provenance("toy", "toy", "CC0", "here", "memory", count, (3, 8, 8))
    return ImageSet(
        images=rows.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8).contiguous(),
        labels=rows.clone() if labels else None,
        label_names=tuple(map(str, range(count))),
        groups=rows % groups,
        provenance=provenance,
    )


def test_floats_map_bytes_to_minus_one_and_one():
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    provenance = Provenance("toy", "toy", "CC0", "here", "memory", 2, (1, 1, 1))
    floats = ImageSet(images, None, (), torch.arange(2), provenance).floats()
    assert floats.dtype == torch.float32
    assert floats.flatten().tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(
    "index", [[3, 1], torch.tensor([3, 1]), slice(1, 4, 2), torch.arange(12) % 5 == 1]
)
def test_select_carries_labels_and_groups_with_their_rows(index):
    chosen = image_set().select(index)
    assert len(chosen) > 0
    assert torch.equal(chosen.images[:, 0, 0, 0].long(), chosen.labels)
    assert torch.equal(chosen.labels % 4, chosen.groups)
    assert chosen.provenance.count == len(chosen)


@given(st.integers(2, 9), st.floats(0.2, 0.8), st.integers(0, 100))
def test_split_by_group_never_cuts_a_group_and_loses_nothing(groups, share, seed):
    whole = image_set(40, groups)
    if not 0 < round(share * groups) < groups:
        with pytest.raises(InputError, match="leaves a part empty"):
            whole.split(share, seed=seed)
        return
    first, second = whole.split(share, seed=seed)
    assert not set(first.groups.tolist()) & set(second.groups.tolist())
    assert sorted(torch.cat([first.labels, second.labels]).tolist()) == list(range(40))


def test_split_by_image_has_the_share_asked_for_and_seed_zero_is_a_seed():
    whole = image_set(40)
    first, second = whole.split(0.25, by="image", seed=0)
    assert (len(first), len(second)) == (30, 10)
    assert torch.equal(second.labels, whole.split(0.25, by="image", seed=0)[1].labels)
    assert not torch.equal(second.labels, whole.split(0.25, by="image", seed=1)[1].labels)


def test_dataset_view_feeds_a_loader():
    loader = DataLoader(
        image_set().as_dataset(), batch_size=4, generator=torch.Generator().manual_seed(0)
    )
    images, labels = next(iter(loader))
    assert images.shape == (4, 3, 8, 8)
    assert torch.allclose((images[:, 0, 0, 0] + 1) * 127.5, labels.float(), atol=1e-4)
    assert image_set(labels=False).as_dataset()[0].shape == (3, 8, 8)


def test_a_label_too_few_is_refused(refuses):
    whole = image_set()
    with refuses("labels has shape"):
        ImageSet(whole.images, whole.labels[1:], (), whole.groups, whole.provenance)


def test_provenance_says_what_was_dropped_and_why():
    provenance = Provenance(
        "toy", "toy", "CC0", "here", "memory", 1, (1, 8, 8), dropped={"too small": 2, "broken": 0}
    )
    text = provenance.describe()
    assert "1 example of shape 1 x 8 x 8" in text
    assert "Dropped: 2 too small." in text
    assert "broken" not in text
