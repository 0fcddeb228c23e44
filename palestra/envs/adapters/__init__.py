"""Environments that other projects have, behind our contract."""
