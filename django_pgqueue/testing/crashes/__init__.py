"""A task is killed at every statement of its, and has to keep its promises."""
