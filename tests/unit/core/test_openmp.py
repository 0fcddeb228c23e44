"""Threads sleep while they wait only where cores are shared, and nobody has said otherwise."""

import os

import pytest

from palestra.core import openmp


@pytest.mark.parametrize(
    ("load", "given", "expected"),
    [(0.9, None, None), (1.1, None, "PASSIVE"), (9.0, "ACTIVE", "ACTIVE"), (0.0, "x", "x")],
)
def test_cores_are_shared_from_a_load_of_half_of_them(monkeypatch, load, given, expected):
    environment = {} if given is None else {"OMP_WAIT_POLICY": given}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    openmp.wait_politely()
    assert environment.get("OMP_WAIT_POLICY") == expected
