"""An executor whose threads are given what a process would be given: packed calls."""

import pickle
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import cloudpickle


class Recorded(Executor):
    """Threads that are given what a process would be given. `lost`: the number of the call whose worker is lost for good."""

    _max_workers = 2

    def __init__(self, lost=None):
        self.pool, self.lost, self.sent, self.running, self.most = ThreadPoolExecutor(2), lost, [], 0, 0
        self.guard = threading.Lock()

    def submit(self, fn, /, *args, **kwargs):
        if len(self.sent) == self.lost:
            failed = Future()
            failed.set_exception(BrokenExecutor("A process of the pool was terminated abruptly."))
            return failed
        data = cloudpickle.dumps((fn, args, kwargs))
        with self.guard:
            self.running += 1
            self.most = max(self.most, self.running)
        self.sent.append(len(data))
        future = self.pool.submit(self._call, data)
        future.add_done_callback(self._ended)
        return future

    def _call(self, data):
        fn, args, kwargs = pickle.loads(data)
        return pickle.loads(pickle.dumps(fn(*args, **kwargs)))

    def _ended(self, future):
        with self.guard:
            self.running -= 1
