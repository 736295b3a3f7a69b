"""What would have happened with other workers: the recorded arrivals, simulated."""

from django_pgqueue.spark.whatif.scenario import Scenario
from django_pgqueue.spark.whatif.simulation import SimulatedArrival, simulate

__all__ = ["Scenario", "SimulatedArrival", "simulate"]
