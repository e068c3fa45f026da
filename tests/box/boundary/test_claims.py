"""Every claim holds on this host, and every claim that names layers is breached where those layers are away."""

from __future__ import annotations

import os

import pytest

from support import need_boxes

from .claims import Claim, controls, judge
from .probes import CLAIMS
from .targets import Engine
from .weak import WEAKENINGS

BY_ID = [pytest.param(claim, id=claim.id) for claim in CLAIMS]
LAYERED = [
    pytest.param(claim, names, id=f"{claim.id} without {', '.join(names)}")
    for claim in CLAIMS
    for names in (claim.without, *claim.more)
    if names
]


@pytest.mark.parametrize("path", ["exec", "template"])
@pytest.mark.parametrize("claim", BY_ID)
def test_the_attack_fails_on_a_box(claim: Claim, path: str, request: pytest.FixtureRequest) -> None:
    need_boxes()
    verdict = judge(claim, Engine(template=path == "template"))
    if claim.known and verdict.word != "not applicable":
        request.applymarker(pytest.mark.xfail(reason=claim.known))
    if verdict.word == "not applicable":
        pytest.skip(verdict.detail)
    assert (verdict.word, verdict.detail) == ("held", ""), claim.sentence


@pytest.mark.parametrize(("claim", "names"), LAYERED)
def test_the_attack_works_where_its_layers_are_away(claim: Claim, names: tuple[str, ...]) -> None:
    """So the layers are what stops it. Where Linux itself stops it everywhere on this host, nothing is proved."""
    need_boxes()
    verdict = judge(claim, Engine(*names))
    if verdict.word == "not applicable":
        pytest.skip(verdict.detail)
    if verdict.word == "held":
        _skip_where_linux_refuses(claim, names)
    assert verdict.word == "breached", f"{verdict}: {claim.sentence}"


def _skip_where_linux_refuses(claim: Claim, names: tuple[str, ...]) -> None:
    if "host id" in names and os.geteuid():
        pytest.skip("only root can give a box the host's uid 0")
    others = [target for target in controls(claim) if not isinstance(target, Engine)]
    if others and not any(judge(claim, other).word == "breached" for other in others):
        pytest.skip("control dead: Linux itself refuses this to every process of this user")


def test_each_layer_of_the_architecture_has_a_claim_that_falls_with_it() -> None:
    used = {name for claim in CLAIMS for names in (claim.without, *claim.more) for name in names}
    assert {WEAKENINGS[name].layer for name in used} == set(range(12))
    assert set(WEAKENINGS) - used == {"session", "cpu limit"}, "these have tests of their own"


def test_no_two_claims_share_a_name() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
