"""How each language's program is built and called. Everything goes below target/interop."""

import dataclasses
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import threading
from typing import Callable

import admin

HERE = pathlib.Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "target" / "interop"
BUILD_SECONDS = 600
JAVA_VERSIONS = {"java5": "5.5.0", "java4": "4.9.8"}
STORE_VERSIONS = ["5.5.0", "4.9.7"]

# Two Maven processes must not fill the local repository at the same time.
maven_lock = threading.Lock()


class BuildFailed(Exception):
    """The program of a language could not be made."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """`command` gets the name and the address of the name server; where `starts_servers`, instead of that the executable."""
    build: Callable[[str, pathlib.Path], None]
    command: Callable[[str, str], tuple[list[str], dict[str, str]]]
    seconds: int = 150
    starts_servers: bool = False


def build_java(name, log):
    maven("java", JAVA_VERSIONS[name], OUTPUT / name, log)


def maven(source, version, output, log):
    with maven_lock:
        call(["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(HERE / source / "pom.xml"),
              f"-Drocketmq.version={version}", f"-Dinterop.output={output}", "process-classes"], log)


def java_command(name, namesrv):
    folder = OUTPUT / name
    return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", f"{folder / 'classes'}:{folder / 'lib'}/*", "petrel.interop.Main", namesrv], {}


def build_go(name, log):
    call(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(OUTPUT / name / "interop"), "."], log, HERE / name)


def go_command(name, namesrv):
    return [str(OUTPUT / name / "interop"), namesrv], {}


def build_python(name, log):
    folder, wanted = OUTPUT / name, HERE / name / "requirements.txt"
    installed = folder / "requirements.txt"
    if not is_same(wanted, installed):
        shutil.rmtree(folder, ignore_errors=True)
        call([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
              "--target", str(folder / "lib"), "-r", str(wanted)], log)
        shutil.copy(wanted, installed)


def python_command(name, namesrv):
    return [sys.executable, str(HERE / name / "main.py"), namesrv], {
        "PYTHONPATH": str(OUTPUT / name / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}


def build_javascript(name, log):
    """npm puts its packages beside package.json, so the program is copied to where they may be."""
    source, folder = HERE / name, OUTPUT / name
    installed = folder / "installed-package-lock.json"
    shutil.copytree(source, folder, dirs_exist_ok=True)
    if not is_same(source / "package-lock.json", installed):
        call(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], log, folder)
        shutil.copy(source / "package-lock.json", installed)


def javascript_command(name, namesrv):
    """The client creates no topics, so they are made here."""
    main, prefix = OUTPUT / name / "main.js", f"interop-js-{secrets.token_hex(4)}"
    listed = subprocess.run(["node", str(main), "--cases"], check=True, capture_output=True, text=True, timeout=30)
    admin.create_topics(namesrv, [f"{prefix}-{case}" for case in listed.stdout.split()])
    return ["node", str(main), namesrv, prefix], {}


def build_javastore(name, log):
    for version in STORE_VERSIONS:
        maven(name, version, OUTPUT / f"{name}-{version}", log)


def javastore_command(name, petrel):
    versions = [f"{version}={OUTPUT / f'{name}-{version}'}" for version in STORE_VERSIONS]
    return [sys.executable, str(HERE / name / "main.py"), petrel, *versions], {}


def is_same(one, other):
    return other.exists() and one.read_bytes() == other.read_bytes()


def call(command, log, folder=None):
    if not shutil.which(command[0]):
        raise BuildFailed(f"{command[0]} is not installed")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out:
        try:
            status = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    timeout=BUILD_SECONDS, env=os.environ).returncode
        except subprocess.TimeoutExpired:
            raise BuildFailed(f"{command[0]} did not finish within {BUILD_SECONDS} s")
    if status != 0:
        raise BuildFailed(f"{command[0]} ended with status {status}, see {log}")


SUITES = {
    "java5": Suite(build_java, java_command),
    "java4": Suite(build_java, java_command),
    "go": Suite(build_go, go_command),
    "python": Suite(build_python, python_command),
    "javascript": Suite(build_javascript, javascript_command),
    "javastore": Suite(build_javastore, javastore_command, seconds=400, starts_servers=True),
}
