"""`make up`: the sequence that brings everything up on one machine, and takes it down again.

Invariant: it can be cut off at any line and started again; each step either finds its work done
or does it over. Whoever holds the lock in the var folder is the only one at work there.
"""

import contextlib
import shutil
from collections.abc import Callable, Mapping
from functools import partial

from .broker import EmbeddedBroker
from .children import Child, StopAsked, Supervisor
from .console import Console
from .environment import environment, keep
from .errors import LaunchError, explain
from .locks import FolderLock
from .logs import ROTATE_AT_START, rotate
from .options import Options, read_options
from .parts import control_plane, demo, gateway_environment, keep_gateway_configuration
from .ports import is_free, remembered_port
from .postgres import EmbeddedPostgres
from .postgres_home import notice
from .spawn import wait_until
from .steps import CREDENTIALS, prepare, read_credentials

# Below this the database may stop in the middle of a write-ahead segment (16 MB each).
_DISK_NEEDED = 300 << 20


def main() -> int:
    """Bring everything up and keep it up until a signal; 0 after a clean stop, 1 if it failed."""
    console = Console()
    try:
        options = read_options()
        say_where(options, console.say)
        _make_var(options)
        held = FolderLock(
            options.var / "up.lock",
            f"Switchgear is already running in {options.var} (process {{pid}}). Use that one, stop "
            "it with `kill {pid}`, or set SWITCHGEAR_VAR to another folder.",
        )
        with held:
            supervisor = Supervisor(console.say, options.var / "run")
            with supervisor.listening():
                return _run(options, supervisor, console)
    except LaunchError as error:
        console.say(f"Cannot start. {error}")
        return 1


def say_where(options: Options, say: Callable[[str], None]) -> None:
    """Say where Postgres keeps its data, if that is not in the var folder."""
    if options.database_url is None and (line := notice(options.var / "postgres")):
        say(line)


def _make_var(options: Options) -> None:
    try:
        for folder in (options.var, options.logs, options.var / "run"):
            folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(options.var).free
    except OSError as error:
        raise explain(error, f"making {options.var}") from error
    if free < _DISK_NEEDED:
        raise LaunchError(
            f"Only {free >> 20} MB are free on the disk of {options.var}; {_DISK_NEEDED >> 20} MB "
            "are needed. Free some space, or set SWITCHGEAR_VAR to a folder on another disk."
        )


def _run(options: Options, supervisor: Supervisor, console: Console) -> int:
    say = console.say
    code = 0
    with contextlib.ExitStack() as stores:
        try:
            _start_everything(options, supervisor, console, stores)
            supervisor.run()
        except StopAsked:
            pass
        except LaunchError as error:
            say(f"Cannot go on. {error}")
            code = 1
        say("Stopping everything")
        supervisor.stop()
    say("Stopped. All data is kept in " + str(options.var))
    return code


def _start_everything(
    options: Options, supervisor: Supervisor, console: Console, stores: contextlib.ExitStack
) -> None:
    say = console.say
    say(f"Switchgear starts; its data and logs are in {options.var}")
    was_killed = supervisor.end_leftovers()
    _check_ports(options, patience=5 if was_killed else 0)
    database_url, owner_url = options.database_url, options.database_owner_url
    if database_url is None:
        server = _start_postgres(options, supervisor, stores)
        database_url, owner_url = server.runtime_dsn(), server.dsn()
    supervisor.check_stop()
    broker_url = options.broker_url or _start_broker(options, supervisor, stores)
    chosen = environment(options, database_url, broker_url)
    # Only `manage.py` hears of the owner: what serves must not be able to become it.
    manages = chosen | {"DATABASE_OWNER_URL": owner_url or ""}
    keep(options.var, manages)
    prepare(options, supervisor, manages)
    credentials = read_credentials(options)
    # Side by side: a gateway waits for no control plane. Traffic only once all of it serves.
    serving = control_plane(options, chosen)
    callers = []
    if options.demo:
        *more, traffic = _demo(options, chosen, credentials, say)
        serving += more
        callers.append(traffic)
    for together in filter(None, (serving, callers)):
        say("Starting " + ", ".join(child.name for child in together))
        supervisor.start(*together)
    _greet(options, credentials, console)


def _demo(
    options: Options,
    chosen: Mapping[str, str],
    credentials: Mapping[str, str],
    say: Callable[[str], None],
) -> list[Child]:
    port = remembered_port(options.var / "run" / "simulator.port")
    keep_gateway_configuration(options, say)
    extra = gateway_environment(options, credentials, f"http://127.0.0.1:{port}")
    return demo(options, {**chosen, **extra}, port)


def _check_ports(options: Options, patience: float) -> None:
    wanted = [("SWITCHGEAR_PORT", options.port, options.host)]
    if options.demo:
        wanted.append(("SWITCHGEAR_GATEWAY_PORT", options.gateway_port, "127.0.0.1"))
    for name, port, host in wanted:
        # The server of an earlier start, killed, may need its few seconds to close.
        try:
            free = wait_until(partial(is_free, port, host), patience, every=0.1)
        except OSError as error:
            raise LaunchError(
                f"SWITCHGEAR_HOST={host!r}: this machine cannot listen there "
                f"({error.strerror}). Write one of its own addresses, such as 127.0.0.1."
            ) from None
        if not free:
            raise LaunchError(
                f"Port {port} on {host} is in use by another program. Stop it, or choose another "
                f"port: make up {name}={port + 1}"
            )


def _start_postgres(
    options: Options, supervisor: Supervisor, stores: contextlib.ExitStack
) -> EmbeddedPostgres:
    supervisor.say("Starting Postgres")
    server = EmbeddedPostgres(
        options.var / "postgres", log=options.logs / "postgres.log", say=supervisor.say
    )
    rotate(server.log, ROTATE_AT_START)
    stores.enter_context(server)
    supervisor.adopt(
        Child(
            server.name,
            server.spawn,
            server.log,
            server.ready,
            stop_signal=server.stop_signal,
            grace=20,
            running=server.process,
        )
    )
    return server


def _start_broker(options: Options, supervisor: Supervisor, stores: contextlib.ExitStack) -> str:
    supervisor.say("Starting the broker")
    server = EmbeddedBroker(
        options.var / "broker", log=options.logs / "broker.log", say=supervisor.say
    )
    rotate(server.log, ROTATE_AT_START)
    stores.enter_context(server)
    supervisor.adopt(
        Child(server.name, server.spawn, server.log, server.ready, running=server.process)
    )
    return server.url()


def _greet(options: Options, credentials: Mapping[str, str], console: Console) -> None:
    console.say(f"Ready after {console.elapsed():.0f} s")
    console.plain(
        f"""
  Dashboard   {options.url}
  User        {credentials["admin_user"]}
  Password    {credentials["admin_password"]}
  (kept in {options.var / CREDENTIALS}; logs in {options.logs})
"""
    )
    if options.demo:
        console.plain(
            f"""  A provider is about to brown out, over and over. Three things to try:
    1. Watch the wall at {options.url}/ while circuits open, probe and close.
    2. Force a circuit open there (press o), and see each instance confirm that it obeys.
    3. Call the gateway as an application would, and read how it decided:
       curl -i {options.gateway_url}/v1/chat/completions -H 'content-type: application/json' \\
         -d '{{"model": "assistant", "messages": [{{"role": "user", "content": "hello"}}]}}'
"""
        )
    else:
        console.plain(
            f"""  Three things to try:
    1. Open {options.url}/ and log in.
    2. Read what the API takes at {options.url}/api/v1/docs.
    3. Connect a gateway with the token in {options.var / CREDENTIALS}.
"""
        )
    console.plain("  Ctrl-C stops everything; the data stays.\n")
