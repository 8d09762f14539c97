"""Counters of events, for the tests of the clients to wait for."""

import threading

# Longer than any wait of a test that passes, in seconds.
PATIENCE = 30


class Counters:
    """How often each thing has happened, to be waited for."""

    def __init__(self):
        self.changed = threading.Condition()
        self.counts = {}
        self.is_over = False

    def add(self, name, by=1):
        with self.changed:
            self.counts[name] = self.counts.get(name, 0) + by
            self.changed.notify_all()

    def has(self, when):
        return all(self.counts.get(name, 0) >= count for name, count in when.items())

    def wait(self, when, patience=PATIENCE):
        with self.changed:
            return self.changed.wait_for(lambda: self.is_over or self.has(when), patience) and self.has(when)

    def settle(self):
        """True when each handler that has begun said how it ended. A worker does not wait for those that it cancelled."""
        with self.changed:
            ended = lambda: self.counts.get("handled", 0) + self.counts.get("lost", 0)
            return self.changed.wait_for(lambda: ended() >= self.counts.get("begun", 0), PATIENCE)

    def end(self):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
