"""Tests of the lab itself."""

import threading
import time
import unittest

from lab import Control, Lab
from vector import VECTORS


class Ending(unittest.TestCase):
    def test_a_handler_may_end_after_its_worker(self):
        """A worker does not wait for handlers that it cancelled: their last mark may come while the vector ends."""
        lab = Lab(("127.0.0.1", 0), Control)
        self.addCleanup(lab.server_close)
        lab.vector({"file": f"{VECTORS}/worker.json", "name": "worker_refuses_a_concurrency_of_0"})
        lab.mark({"name": "begun"})
        late = threading.Thread(target=lambda: (time.sleep(0.1), lab.mark({"name": "lost"})))
        late.start()
        self.addCleanup(late.join)
        self.assertEqual(lab.end({}), {"failures": []})


if __name__ == "__main__":
    unittest.main()
