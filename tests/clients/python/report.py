"""What every client says at its end; docs/clients.md is made of it."""

from importlib.metadata import version


def report(package, protocol, exercised, records):
    print(f"client | {package} | {version(package)} | Python | {protocol} | {exercised}")
    print(f"{package}: {records} records and every command answered as expected")
