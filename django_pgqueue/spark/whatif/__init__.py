"""Simulates the recorded arrivals with other numbers of workers."""

from django_pgqueue.spark.whatif.scenario import Scenario
from django_pgqueue.spark.whatif.simulation import SimulatedArrival, simulate

__all__ = ["Scenario", "SimulatedArrival", "simulate"]
