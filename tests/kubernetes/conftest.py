"""Fixtures of the tests on a stand-in for kubectl."""
from program import program as program  # a fixture
