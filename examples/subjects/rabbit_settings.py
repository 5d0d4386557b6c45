"""What a RabbitMQ is started with that leaves no trace: the gallery's, and the one of the crash runs.

It imports no client, because tests without the subjects' packages need it too.
"""

import os
from pathlib import Path

DEBIAN_RABBIT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one on Debian's path becomes another user


def rabbit_environment(folder: Path, port: int, names: int, between: int, plugins: str = "") -> dict[str, str]:
    """Return what a RabbitMQ is started with that keeps to a folder and to loopback; `names` is Erlang's register."""
    (folder / "plugins").write_text(f"[{plugins}].")
    return {
        **os.environ,
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"subject{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(between),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log-of-server"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
