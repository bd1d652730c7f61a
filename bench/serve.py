"""python -m bench.serve [--rate N] [--seconds N] [--vocabulary N] [--json OUT]: the service, files.

Requests are sent at fixed instants whether or not earlier ones were answered, and a latency counts
from its instant, so waiting in a queue is part of it. Versions swap meanwhile. The same number of
requests for /health, which computes nothing, tells what machine and HTTP cost. Then a file of rows
is scored, beside bare onnxruntime calls on the same rows as arrays in memory.
"""

import argparse
import asyncio
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.serving_model import make_model, request_bodies, rows
from pipeline.core.files import publish
from pipeline.serving.offline import score_files
from pipeline.serving.predictor import BATCH_ROWS, load

ROWS_EACH, CONNECTIONS, BODIES, WARM = 64, 16, 200, 200


def free_port() -> int:
    """A port on loopback that nobody listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_server(model: Path, port: int) -> subprocess.Popen[bytes]:
    """`adacalib serve`, after it answered /health."""
    command = [sys.executable, "-m", "pipeline.cli.main", "serve", "--model", str(model)]
    server = subprocess.Popen([*command, "--port", str(port)])
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                return server
        except OSError:
            sleep(0.1)
    raise SystemExit("the server did not start")


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int) -> Connection:
    """A new connection."""
    return await asyncio.open_connection("127.0.0.1", port)


async def ask(connection: Connection, body: bytes) -> tuple[bool, bool]:
    """Whether rows, or /health where there are none, were answered with 200; whether it goes on."""
    reader, writer = connection
    what = "POST /score" if body else "GET /health"
    head = f"{what} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return answer.startswith(b"http/1.1 200"), b"connection: close" not in answer


async def load_test(port: int, bodies: list[bytes], rate: float, count: int) -> tuple[list, int]:
    """Seconds of each request from its instant, and how many failed."""
    free: asyncio.Queue = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await connect(port))
    seconds, failed, begun = [], 0, perf_counter()

    async def one(number: int) -> None:
        nonlocal failed
        connection = await free.get()
        well = kept = False
        with suppress(OSError, EOFError):
            well, kept = await ask(connection, bodies[number % len(bodies)])
        seconds.append(perf_counter() - begun - number / rate)
        failed += not well
        if not kept:
            connection[1].close()
            connection = await connect(port)
        free.put_nowait(connection)

    tasks = []
    for number in range(count):
        await asyncio.sleep(max(0.0, begun + number / rate - perf_counter()))
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    return seconds, failed


async def swap(versions: list[Path], served: Path, every: float) -> None:
    """Promote the versions in turn, until cancelled."""
    turn = 0
    while True:
        await asyncio.sleep(every)
        turn += 1
        await asyncio.to_thread(promote, versions[turn % len(versions)], served)


def promote(version: Path, served: Path) -> None:
    """Replace the served folder by links to a version's files, at once."""
    with publish(served) as folder:
        shutil.copytree(version, folder, copy_function=os.link)


async def measured(
    port: int, bodies: list[bytes], options: argparse.Namespace, folders: list[Path]
) -> tuple[Any, ...]:
    """Latencies and failures while versions swap."""
    gc.collect()
    gc.freeze()  # a pause of this process would count as one of the service
    await load_test(port, bodies, options.rate, WARM)
    control, _ = await load_test(port, [b""], options.rate, int(options.rate * options.seconds))
    swapping = asyncio.create_task(swap(folders[:-1], folders[-1], options.swap_every))
    result = await load_test(port, bodies, options.rate, int(options.rate * options.seconds))
    swapping.cancel()
    return *result, control


def bench_service(folder: Path, versions: list[Path], options: argparse.Namespace) -> dict:
    """The table's first row."""
    served, port = folder / "served", free_port()
    promote(versions[0], served)
    server = start_server(served, port)
    try:
        bodies = request_bodies(BODIES, ROWS_EACH, options.vocabulary)
        seconds, failed, control = asyncio.run(measured(port, bodies, options, [*versions, served]))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    finally:
        server.terminate()
        server.wait()
    swaps = next(line.split()[1] for line in lines if line.startswith("adacalib_versions_taken "))
    p50, p99, worst, peer_p50, peer_p99 = (
        float(np.quantile(times, q)) * 1e3
        for times, q in (
            (seconds, 0.5), (seconds, 0.99), (seconds, 1.0), (control, 0.5), (control, 0.99),
        )
    )  # fmt: skip
    return {
        "what": f"/score, {options.rate:.0f} requests/s x {ROWS_EACH} rows",
        "requests": len(seconds),
        "failed": failed,
        "swaps": int(float(swaps)),
        "p50_ms": p50,
        "p99_ms": p99,
        "worst_ms": worst,
        "peer": "/health before, nothing swapping",
        "peer_p50_ms": peer_p50,
        "peer_p99_ms": peer_p99,
    }


def bench_files(folder: Path, model: Path, options: argparse.Namespace) -> dict:
    """The table's second row: seconds are medians of alternating runs."""
    table, source = rows(options.rows, options.vocabulary), folder / "rows.parquet"
    pq.write_table(table, source)
    predictor, bare_session = load(model), load(model, threads=0).session
    arrays = predictor.inputs_of(table)
    ours, bare = [], []
    for _ in range(options.repeats):
        began = perf_counter()
        score_files(predictor, [source], folder / "scores.parquet", threads=0)
        ours.append(perf_counter() - began)
        began = perf_counter()
        for start in range(0, options.rows, BATCH_ROWS):
            rows_now = slice(start, start + BATCH_ROWS)
            bare_session.run(None, {name: a[rows_now] for name, a in arrays.items()})
        bare.append(perf_counter() - began)
    return {
        "what": "adacalib score",
        "rows": options.rows,
        "ours_s": median(ours),
        "peer": "onnxruntime, arrays in memory",
        "peer_s": median(bare),
        "ratio": median(bare) / median(ours),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--swap-every", type=float, default=10.0)
    parser.add_argument("--vocabulary", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        versions = [make_model(folder / str(s), options.vocabulary, s) for s in range(2)]
        results = [
            bench_service(folder, versions, options),
            bench_files(folder, versions[0], options),
        ]
    for result in results:
        print(*(f"{name}: {_shown(value)}" for name, value in result.items()), sep="  ")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
