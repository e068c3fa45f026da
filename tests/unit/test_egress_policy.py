"""Which hosts and addresses an ``egress_allow`` means: every trap of matching, as tables."""

from __future__ import annotations

import pytest

import kern_sandbox
from kern_sandbox._egress.dial import is_own
from kern_sandbox._egress.policy import Policy, Refused
from kern_sandbox.spec import BoxSpec
from kern_sandbox.spec_network import Entry, address_kind, check_egress, normal_host


def entries(*items: str) -> tuple[Entry, ...]:
    found = check_egress(list(items))
    assert found is not None
    return found


def allowed(items: list[str], host: str, port: int = 443) -> bool:
    """Whether a client that asks for ``host`` as it is written is let through; a host that is none is not."""
    try:
        Policy(entries(*items)).check(normal_host(host), port)
    except (Refused, ValueError):
        return False
    return True


# --- entries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "entry"),
    [
        ("index.example", Entry("index.example", (80, 443), "name")),
        ("EXAMPLE.com.", Entry("example.com", (80, 443), "name")),
        ("db.internal:5432", Entry("db.internal", (5432,), "name")),
        ("db.internal.:5432", Entry("db.internal", (5432,), "name")),
        ("redis", Entry("redis", (80, 443), "name")),
        ("my_db.example", Entry("my_db.example", (80, 443), "name")),
        ("*.example.com", Entry("example.com", (80, 443), "below")),
        ("*.Example.com:8443", Entry("example.com", (8443,), "below")),
        ("bücher.example", Entry("xn--bcher-kva.example", (80, 443), "name")),
        ("XN--BCHER-KVA.example", Entry("xn--bcher-kva.example", (80, 443), "name")),
        ("example\u3002com", Entry("example.com", (80, 443), "name")),
        ("ｅxample．com", Entry("example.com", (80, 443), "name")),  # noqa: RUF001
        ("127.0.0.1:5432", Entry("127.0.0.1", (5432,), "address")),
        ("::1", Entry("::1", (80, 443), "address")),
        ("[2001:DB8:0::1]:443", Entry("2001:db8::1", (443,), "address")),
        ("[::ffff:10.1.2.3]:22", Entry("10.1.2.3", (22,), "address")),
        ("localhost:1", Entry("localhost", (1,), "name")),
    ],
)
def test_an_entry_has_one_form(item: str, entry: Entry) -> None:
    assert entries(item) == (entry,)


@pytest.mark.parametrize(
    "item",
    [
        "", " ", ".", "..", "*", "*.", "*.*", "*.com", "*.1.2.3.4", "*x.example.com", "a.*.com", "**.example.com",
        " example.com", "example.com ", "exam ple.com", "a..b", ".example.com", "example.com..", "a\0.example",
        "http://example.com", "example.com/", "example.com/path", "me@example.com", "example.com?x", "example.com#x",
        "example.com:", "example.com:0", "example.com:65536", "example.com:x", "example.com:+1", "example.com:\uff11",
        "example.com:80:90", ":80", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.0.0.01", "1.2.3.4.5",
        "1.2.3.256", "example.0x7f", "[::1", "::1]", "[::1]x", "[::1]:", "[fe80::1%eth0]:80", "[1.2.3.4]:80",
        "a" * 64 + ".example", "a." * 130 + "example", "-a.example", "a-.example",
        "straße.example", "a\u200db.example", "a\u2100b.example",
        "a\nb.example", "a\r\n.example", "exa%6dple.com", "a,b.example", "0.0.0.0:80", "::",
        "224.0.0.1:80", "255.255.255.255", "[ff02::1]:80", None, 7, b"example.com", ["example.com"],
    ],
)  # fmt: skip
def test_what_names_no_host_is_refused_when_it_is_given(item: object) -> None:
    with pytest.raises(kern_sandbox.SpecError, match="egress_allow has the entry"):
        check_egress(["example.com", item])


@pytest.mark.parametrize("value", ["example.com", {"example.com"}, {"a.example": 1}, 7, True, b"x"])
def test_only_a_list_is_taken(value: object) -> None:
    with pytest.raises(kern_sandbox.SpecError, match="egress_allow="):
        check_egress(value)


def test_there_is_a_most_number_of_entries() -> None:
    assert len(entries(*(f"h{number}.example" for number in range(128)))) == 128
    with pytest.raises(kern_sandbox.SpecError, match="129 entries"):
        check_egress([f"h{number}.example" for number in range(129)])


def test_none_is_no_proxy_and_an_empty_list_is_one_that_refuses_everything() -> None:
    assert check_egress(None) is None
    assert check_egress([]) == ()
    assert not allowed([], "example.com")
    assert not allowed([], "")
    assert not allowed([], "127.0.0.1")


def test_it_contradicts_the_hosts_whole_network() -> None:
    with pytest.raises(kern_sandbox.SpecError, match="network=True"):
        BoxSpec.of(network=True, egress_allow=[])
    assert BoxSpec.of(network=False, egress_allow=[]).egress_allow == ()
    assert BoxSpec.of(network=True).egress_allow is None


@pytest.mark.parametrize(
    "inside", ["localhost:1", "x.localhost", "127.0.0.1:80", "[::1]:80", "10.0.0.7", "169.254.169.254"]
)
def test_hostile_code_is_given_no_address_of_the_inside(inside: str) -> None:
    with pytest.raises(kern_sandbox.SpecError, match="untrusted"):
        BoxSpec.of(security_profile="untrusted", egress_allow=["index.example", inside])
    assert BoxSpec.of(egress_allow=[inside]).egress_allow
    assert BoxSpec.of(security_profile="untrusted", egress_allow=["index.example", "1.1.1.1"]).egress_allow


# --- hosts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "host", "yes"),
    [
        (["example.com"], "example.com", True),
        (["example.com"], "EXAMPLE.COM", True),
        (["example.com"], "example.com.", True),
        (["example.com."], "example.com", True),
        (["example.com"], "example\u3002com", True),
        (["example.com"], "example\uff0ecom\uff61", True),
        (["bücher.example"], "xn--bcher-kva.example", True),
        (["xn--bcher-kva.example"], "BÜCHER.example", True),
        (["example.com"], "exаmple.com", False),  # noqa: RUF001  # a Cyrillic letter
        (["example.com"], "example.com..", False),
        (["example.com"], "www.example.com", False),
        (["example.com"], "evilexample.com", False),
        (["example.com"], "example.com.evil.test", False),
        (["example.com"], "example.com@evil.test", False),
        (["example.com"], "evil.test/example.com", False),
        (["example.com"], "example.co", False),
        (["example.com"], "com", False),
        (["example.com"], "", False),
        (["example.com"], ".", False),
        (["*.example.com"], "a.example.com", True),
        (["*.example.com"], "A.b.Example.com.", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], ".example.com", False),
        (["*.example.com"], "evilexample.com", False),
        (["*.example.com"], "evil-example.com", False),
        (["*.example.com"], "a.example.com.evil.test", False),
        (["*.example.com"], "*.example.com", False),
        (["127.0.0.1"], "127.0.0.1", True),
        (["127.0.0.1"], "::ffff:127.0.0.1", True),
        (["127.0.0.1"], "[::ffff:7f00:1]", True),
        (["127.0.0.1"], "127.0.0.1.", True),
        *(
            (["127.0.0.1", "localhost"], odd, False)
            for odd in ("127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "017700000001")
        ),
        (["127.0.0.1"], "localhost", False),
        (["127.0.0.1"], "::1", False),
        (["::1"], "[0:0:0:0:0:0:0:1]", True),
        (["2001:db8::1"], "2001:DB8::0001", True),
        (["2001:db8::1"], "2001:db8::2", False),
    ],
)
def test_a_host_is_matched_exactly(items: list[str], host: str, yes: bool) -> None:
    assert allowed(items, host) is yes


@pytest.mark.parametrize(
    ("items", "port", "yes"),
    [
        (["a.example"], 443, True),
        (["a.example"], 80, True),
        (["a.example"], 22, False),
        (["a.example"], 8443, False),
        (["a.example:5432"], 5432, True),
        (["a.example:5432"], 443, False),
        (["a.example:5432", "a.example"], 443, True),
        (["*.example:443", "a.example:5432"], 5432, True),
        (["b.example:5432", "a.example"], 5432, False),
    ],
)
def test_ports_belong_to_their_entry(items: list[str], port: int, yes: bool) -> None:
    items = [item.replace("*.example", "*.x.example") for item in items]
    assert allowed(items, "a.example", port) is yes


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1",
        "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1",
        "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1",
        "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%2", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1",
        "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "3fff::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "::127.0.0.1", "100::1", "4000::1", "nonsense",
    ],
)  # fmt: skip
def test_an_address_that_no_public_server_has_is_refused_unless_named(address: str) -> None:
    assert address_kind(address)
    with pytest.raises(Refused, match="egress_allow"):
        Policy(entries("a.example", "*.b.example")).check_address(address, 443)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.0.1",
     "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1", "64:ff9b::101:101"],
)  # fmt: skip
def test_a_public_address_needs_no_entry_of_its_own(address: str) -> None:
    assert not address_kind(address)
    Policy(entries("a.example")).check_address(address, 443)


@pytest.mark.parametrize(
    ("items", "address", "port", "yes"),
    [
        (["db.example:5432", "10.0.0.7:5432"], "10.0.0.7", 5432, True),
        (["db.example:5432", "10.0.0.7:5432"], "10.0.0.8", 5432, False),
        (["db.example:5432", "10.0.0.7:443"], "10.0.0.7", 5432, False),
        (["db.example:5432", "10.0.0.7:5432"], "::ffff:10.0.0.7", 5432, False),  # a resolver gives the plain form
        (["localhost:5432"], "127.0.0.1", 5432, True),
        (["localhost:5432"], "::1", 5432, True),
        (["localhost:5432"], "127.0.0.2", 5432, False),
        (["db.localhost:5432"], "127.0.0.1", 5432, True),
        (["db.localhost:5432"], "127.0.0.1", 5433, False),
        (["*.localhost.example:80"], "127.0.0.1", 80, False),
        (["169.254.169.254:80"], "169.254.169.254", 80, True),
    ],
)
def test_an_entry_that_is_an_address_names_it_for_its_port(
    items: list[str], address: str, port: int, yes: bool
) -> None:
    policy = Policy(entries(*items))
    if yes:
        policy.check_address(address, port)
    else:
        with pytest.raises(Refused):
            policy.check_address(address, port)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111"])
def test_a_public_address_of_this_machine_has_to_be_named_too(address: str) -> None:
    Policy(entries("a.example")).check_address(address, 443)
    Policy(entries("a.example", f"[{address}]" if ":" in address else address)).check_address(address, 443, own=True)
    with pytest.raises(Refused, match="an address of this machine"):
        Policy(entries("a.example")).check_address(address, 443, own=True)


def test_which_addresses_are_this_machines_is_known_without_sending_anything() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")
    assert not is_own("2001:db8::1")
    assert not is_own("nonsense")
