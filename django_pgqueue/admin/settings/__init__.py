"""What may be changed: schedules, channels, exchanges, bindings and queues."""
