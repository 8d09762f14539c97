"""Ids of messages that are pushed without one."""

import concurrent.futures
import multiprocessing
import re
import unittest
import unittest.mock

from dwell.values import Ids, ulid


def some(count):
    return [ulid() for _ in range(count)]


class TestIds(unittest.TestCase):
    def test_ids_are_unique_and_count_up_in_runs(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            ids = [id for made in pool.map(some, [2_000] * 8) for id in made]
        self.assertEqual(len(set(ids)), 16_000)
        self.assertTrue(all(re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", id) for id in ids))
        runs = len({id[:23] for id in ids})
        self.assertTrue(16_000 / Ids.RUN_IDS <= runs <= 16_000 / 10, runs)

    @unittest.skipUnless("fork" in multiprocessing.get_all_start_methods(), "this system has no fork")
    def test_a_process_and_its_forks_have_other_ids(self):
        # The run of the parent is still open when it forks.
        with unittest.mock.patch.object(Ids, "RUN_MS", 60_000):
            before = some(1)
            with multiprocessing.get_context("fork").Pool(4) as pool:
                children = pool.map(some, [100] * 40, chunksize=1)
            ids = before + some(100) + [id for child in children for id in child]
        self.assertEqual(len(set(ids)), len(ids))


if __name__ == "__main__":
    unittest.main()
