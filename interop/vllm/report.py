"""Named checks, in the order in which they stand, and what became of them."""

import sys
import time
import traceback

CHECKS = {}


def check(name):
    """Registers a function of the world as a check. It returns what it measured, or
    nothing; it fails by raising."""
    def register(f):
        f.check_name = name
        CHECKS[name] = f
        return f
    return register


class Report:
    def __init__(self):
        self.passed, self.failed, self.began = 0, [], time.monotonic()

    def say(self, line):
        print(f"{time.monotonic() - self.began:6.1f}s  {line}", flush=True)

    def run(self, f, world):
        start = time.monotonic()
        try:
            detail = f(world)
        except (Exception, SystemExit) as e:
            if getattr(e, "stop", False):
                raise
            self.failed.append(f.check_name)
            what = str(e) if isinstance(e, (AssertionError, SystemExit)) and str(e) else f"{type(e).__name__}: {e}"
            at = next((x for x in reversed(traceback.extract_tb(sys.exc_info()[2])) if "interop" in x.filename), None)
            self.say(f"FAIL  {f.check_name}\n         {what}\n         at {at.filename.rsplit('/', 1)[-1]}:{at.lineno}" if at else f"FAIL  {f.check_name}\n         {what}")
        else:
            self.passed += 1
            self.say(f"ok    {f.check_name} ({time.monotonic() - start:.1f} s)" + (f"\n         {detail}" if detail else ""))

    def end(self):
        for name in self.failed:
            print("failed:", name)
        print(f"{self.passed} passed, {len(self.failed)} failed", flush=True)
        return 1 if self.failed or not self.passed else 0
