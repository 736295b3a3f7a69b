"""Crash tests: a task is killed at each of its statements, and must keep its promises."""
