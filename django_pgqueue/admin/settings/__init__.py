"""Settings that users may change: schedules, channels, exchanges, bindings and queues."""
