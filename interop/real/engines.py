"""Starts two pinned vLLM engines with the larger model and plays side_by_side.py on
them: engines.py VENV MODEL RUN RIVALS [NAME...]. LOADS, RUNS and KVASIR_ARGS come from
the environment, see run."""

import concurrent.futures
import ctypes
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "vllm"))
import fleet  # noqa: E402

LOADS = {
    "light": "--conv 24 --turns 6 --conc 6",
    "heavy": "--conv 24 --turns 6 --conc 7 --sys 700 --user 160 --out 16 --groups 6",
}


def stop(number, _):
    raise SystemExit(f"bench-real: ended by {signal.Signals(number).name}")


def adopt():
    """Makes this process the parent of orphans below it: the routers are sessions of
    their own, and outlive a player that is stopped."""
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0):  # PR_SET_CHILD_SUBREAPER
        raise OSError(ctypes.get_errno(), "prctl")


def end_children():
    """Ends what is left below this process."""
    for pid in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        try:
            os.killpg(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def main(venv, model, run, rivals, *names):
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, stop)
    adopt()
    run = pathlib.Path(run)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("bench-real: two engines want two cores, there is one")
    engines = [fleet.Engine(venv, model, run, blocks=256, max_len=4096, prefix=("taskset", "-c", str(core))) for core in cores[:2]]
    player = fleet.Process(run / "player.log")
    try:
        for e in engines:
            e.start()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda e: e.wait(), engines))
        urls = ",".join(e.url for e in engines)
        events = ",".join(f"tcp://127.0.0.1:{e.events}" for e in engines)
        for load in os.environ.get("LOADS", "light heavy").split():
            for k in range(int(os.environ.get("RUNS", "1"))):
                print(f"# {load}, run {k + 1}: {LOADS[load]} --seed {k + 1}", flush=True)
                player.process = subprocess.Popen(
                    [venv + "/bin/python", run / "side_by_side.py", rivals, venv + "/bin/python", urls, events, *names, "--", *LOADS[load].split(), "--seed", str(k + 1)],
                    env=dict(os.environ, KVASIR=str(run / "kvasir")), start_new_session=True)
                if player.process.wait():
                    raise SystemExit(f"bench-real: side_by_side.py failed with status {player.process.returncode}")
    finally:
        player.stop(wait=10)
        for e in engines:
            e.stop()
        end_children()


if __name__ == "__main__":
    main(*sys.argv[1:])
