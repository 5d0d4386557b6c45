"""Start the servers that the real subjects run on: fresh ones, in a temporary folder, for this process.

Redis and PostgreSQL listen on sockets in that folder, NATS, RabbitMQ and tansu on ports of loopback.
"""

import atexit
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

import psycopg
import redis
from examples.subjects.rabbit_settings import DEBIAN_RABBIT, rabbit_environment
from tools.find_servers import SERVERS, locate

PATIENCE_S = 300  # RabbitMQ takes ten seconds of a processor, and may have to share it
PARTITIONS = 2  # of the subjects that begin with "orders."


@cache
def redis_socket() -> str:
    """Start a Redis that keeps nothing on disk, and return the path of its socket."""
    folder = _folder()
    socket = str(folder / "redis.sock")
    _serve(
        [_program("redis-server"), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", str(folder)],
        redis.Redis(unix_socket_path=socket).ping,
        folder / "log",
    )
    return socket


@cache
def postgres_address() -> str:
    """Start a PostgreSQL that trusts every user of its socket and does not wait for the disk; return its address."""
    folder = _folder()
    data = str(folder / "data")
    # PostgreSQL refuses to run as root.
    user = _unprivileged() if os.geteuid() == 0 else None
    postgres = Path(_program("postgres")).resolve()  # what is on the path may be a link
    if user is not None:
        shutil.chown(folder, user)
        postgres = _where_all_may_go(postgres, folder)
    initdb = [str(postgres.with_name("initdb")), "--pgdata", data, "--username=kit", "--auth=trust", "--no-sync"]
    initdb += ["--encoding=UTF8", "--locale=C"]
    subprocess.run(initdb, user=user, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "synchronous_commit=off"]
    settings.append("autovacuum=off")  # it counts rows, and the planner would choose another plan half-way
    flags = [word for setting in settings for word in ("-c", setting)]
    address = f"host={folder} user=kit dbname=postgres"
    _serve([str(postgres), "-D", data, *flags], lambda: psycopg.connect(address).close(), folder / "log", user)
    return address


@cache
def nats_address() -> str:
    """Start a NATS with JetStream that maps ``orders.KEY`` to ``orders.PARTITION.KEY``; return its address."""
    folder, port = _folder(), _free_port()
    (folder / "nats.conf").write_text(
        f'listen: "127.0.0.1:{port}"\njetstream: {{ store_dir: "{folder}/store" }}\n'
        f'mappings = {{ "orders.*": "orders.{{{{partition({PARTITIONS},1)}}}}.{{{{wildcard(1)}}}}" }}\n'
    )
    command = [_program("nats-server"), "-c", str(folder / "nats.conf")]
    _serve(command, partial(_knock, port), folder / "log")
    return f"nats://127.0.0.1:{port}"


@cache
def rabbit_address() -> str:
    """Start a RabbitMQ with the consistent-hash exchange, and Erlang's register of nodes; return its address."""
    folder, port, names = _folder(), _free_port(), _free_port()
    environment = rabbit_environment(folder, port, names, _free_port(), "rabbitmq_consistent_hash_exchange")
    found = _program("rabbitmq-server")
    server = str(DEBIAN_RABBIT if DEBIAN_RABBIT.exists() else found)
    register = [shutil.which("epmd") or "epmd", "-address", "127.0.0.1", "-port", str(names)]
    for command, at in ((register, names), ([server], port)):
        _serve(command, partial(_knock, at), folder / f"log-{at}", environment=environment)
    return f"amqp://127.0.0.1:{port}/"


@cache
def tansu_address() -> str:
    """Start a tansu, a broker for Kafka's clients, that keeps everything in memory; return its address."""
    folder, port = _folder(), _free_port()
    url = f"tcp://127.0.0.1:{port}"
    command = [_program("tansu"), "broker", "--listener-url", url, "--advertised-listener-url", url]
    _serve([*command, "--storage-engine", "memory://tansu/"], partial(_knock, port), folder / "log")
    return f"127.0.0.1:{port}"


def version_of(program: str) -> str:
    """Return the version of a server; of RabbitMQ as it greets, because its tools start a daemon."""
    if program == "rabbitmq-server":
        with socket.create_connection(("127.0.0.1", int(rabbit_address().split(":")[-1].strip("/")))) as connection:
            connection.sendall(b"AMQP\0\0\x09\x01")
            said = connection.recv(4_096).decode("latin-1").partition("version")[2]
    else:
        said = subprocess.run([_program(program), "--version"], capture_output=True, text=True, check=True).stdout
    numbers = re.search(r"\d+(\.\d+)+", said)
    assert numbers is not None, said
    return numbers[0]


def _knock(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _program(name: str) -> str:
    program = locate(name)
    if program is None:
        message = f"there is no {name}; type: make servers"
        raise FileNotFoundError(message)
    return str(program)


def _where_all_may_go(program: Path, folder: Path) -> Path:
    """Return the program, or a copy if it comes from a wheel in an environment that only root may enter (/root)."""
    module = SERVERS["postgres"].wheel_module
    package = next((each for each in program.parents if each.name == module), None)
    if package is None or all(each.stat().st_mode & stat.S_IXOTH for each in program.parents):
        return program
    for each in (package, package.with_name(f"{module}.libs")):  # the loader looks for libraries beside the package
        if each.is_dir():
            shutil.copytree(each, folder / each.name, symlinks=True)
    return folder / program.relative_to(package.parent)


def _unprivileged() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _folder() -> Path:
    folder = Path(mkdtemp(prefix="subject-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _serve(
    command: Sequence[str],
    ask: Callable[[], object],
    log: Path,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start a server that ends with this process, and wait until it answers."""
    with log.open("wb") as said:
        server = subprocess.Popen(
            command,
            user=user,
            cwd=log.parent,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    atexit.register(_stop, server)
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            ask()
        except (psycopg.OperationalError, redis.ConnectionError, OSError) as error:
            if server.poll() is not None or time.monotonic() > give_up:
                error.add_note(f"{command[0]} said: {log.read_text('utf-8', 'replace')[-2_000:] or 'nothing'}")
                raise
            time.sleep(0.02)
        else:
            return


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End a server, and what it has started: nothing of it is kept."""
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
