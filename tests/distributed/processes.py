"""Runs of several processes on this machine, as the launcher starts them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")


def free_ports(n):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def start(n, scenario, folder, *args):
    """The processes of a run, each of which writes ``{scenario}-{rank}.json``."""
    master, *ports = free_ports(n + 1)
    endpoints = [f"127.0.0.1:{port}" for port in ports]
    env = os.environ | {
        "PADDLE_TRAINERS_NUM": str(n),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_MASTER": f"127.0.0.1:{master}",
        "OMP_NUM_THREADS": "1",
    }
    command = [
        sys.executable,
        "-W",
        "ignore",
        WORKER,
        scenario,
        folder,
        *map(str, args),
    ]
    return [
        subprocess.Popen(
            command,
            env=env
            | {"PADDLE_TRAINER_ID": str(i), "PADDLE_CURRENT_ENDPOINT": endpoint},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i, endpoint in enumerate(endpoints)
    ]


def finish(processes, scenario, folder, timeout=240):
    """What each rank has written."""
    texts = [p.communicate(timeout=timeout)[0] for p in processes]
    assert all(p.returncode == 0 for p in processes), "\n".join(
        t[-3000:] for t in texts
    )
    return [
        json.loads((Path(folder) / f"{scenario}-{i}.json").read_text())
        for i in range(len(processes))
    ]


def results(n, scenario, folder, *args):
    return finish(start(n, scenario, folder, *args), scenario, folder)
