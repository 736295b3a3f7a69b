"""The product behind a ``version()``: these texts were written down by others, since no such server runs here."""

from __future__ import annotations

import pytest

from django_pgqueue.values.products import other_product

ON = "on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit"
REDSHIFT = (
    "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 (Red Hat 3.4.2-6.fc3), "
    "Redshift 1.0.77467"
)


@pytest.mark.parametrize(
    ("version", "product"),
    [
        ("CockroachDB CCL v26.2.5 (x86_64-pc-linux-gnu, built 2026/04/23 13:54:57, go1.23)", "CockroachDB"),
        (f"PostgreSQL 15.12-YB-2025.2.3.0-b1 {ON}", "YugabyteDB"),
        (REDSHIFT, "Amazon Redshift"),
        ("H2 2.2.224 (2023-09-17)", "H2 2.2.224 (2023-09-17)"),
        ("x" * 1000, "x" * 60),
        ("", ""),
    ],
)
def test_a_server_that_is_not_postgresql_is_named(version: str, product: str) -> None:
    assert other_product(version) == product


@pytest.mark.parametrize(
    "version",
    [
        f"PostgreSQL 15.17 (Debian 15.17-0+deb12u1) {ON}",
        "PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by aarch64-unknown-linux-gnu-gcc (GCC) 9.5.0, 64-bit",
        f"PostgreSQL 15.2 (EnterpriseDB Advanced Server 15.2.0) {ON}",
        f"PostgreSQL 19devel {ON}",
    ],
)
def test_postgresql_and_its_derivatives_have_no_other_name(version: str) -> None:
    assert other_product(version) is None
