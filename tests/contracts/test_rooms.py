"""Every registered room passes every room check."""

from __future__ import annotations

import pytest

from noisewright import methods
from noisewright.testing import room_checks
from noisewright.types import Room


@pytest.mark.parametrize("name", methods.names())
def test_room_can_be_loaded(name):
    room = methods.room(name)
    assert isinstance(room, Room)
    assert room.name == name


@pytest.mark.global_stream  # experiments bring matplotlib, whose first import draws from `random`
@pytest.mark.parametrize("check", room_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", methods.names())
def test_room_contract(name, check):
    check(methods.room(name))
