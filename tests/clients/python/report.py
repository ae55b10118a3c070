"""What every client says at its end; docs/clients.md is made of it."""

import os
import ssl
from importlib.metadata import version


def tls_context():
    """Trusts the authority whose certificate `TLS_CA` names, and checks the server's name; `None`
    without that variable."""
    authority = os.environ.get("TLS_CA")
    return ssl.create_default_context(cafile=authority) if authority else None


def with_tls(protocol):
    """How docs/clients.md names the protocol."""
    return f"{protocol}, TLS" if "TLS_CA" in os.environ else protocol


def report(package, protocol, exercised, records):
    print(f"client | {package} | {version(package)} | Python | {protocol} | {exercised}")
    print(f"{package}: {records} records and every command answered as expected")
