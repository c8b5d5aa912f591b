"""Cases that Kafka's classes do not have: zero bounds, overlong throttle times, and clients without a quota."""

from __future__ import annotations

from odradek.protocol.wire import INT32_MAX
from odradek.security.quotas.connections import AddressRates
from odradek.security.quotas.mutations import MutationQuota
from odradek.security.quotas.rates import Rate, TokenBucket, Window, throttle_ms

WINDOW = Window(11, 1000)


def test_overlong_throttle_time_is_int32_max() -> None:
    assert throttle_ms(1e18, 1e-9, 10_000) == throttle_ms(1, 0, 10_000) == INT32_MAX
    bucket = TokenBucket(WINDOW, 0)
    bucket.take(1, 0)
    assert bucket.throttle_ms(0) == INT32_MAX


def test_rate_without_records_is_zero() -> None:
    assert (Rate(WINDOW).measure(5), Rate(WINDOW).throttle_ms(1, 5)) == (0, 0)


def test_mutations_without_a_quota_are_accepted() -> None:
    quota = MutationQuota(None, lambda: 0, strict=True)
    assert quota.accept(10**9) and quota.throttle_ms() == 0


def test_throttle_time_decreases_while_topics_are_created() -> None:
    clock = [0]
    quota = MutationQuota(TokenBucket(Window(1, 1000), 1), lambda: clock[0], strict=True)
    assert (quota.accept(5), quota.accept(1), quota.throttle_ms()) == (True, False, 4000)
    clock[0] = 1500
    assert quota.throttle_ms() == 2500


def test_rates_of_idle_addresses_expire() -> None:
    rates = AddressRates(Window(2, 1000), {"a": 1.0}.get)
    assert rates.connected("b", 0) == 0
    assert [rates.connected("a", now_ms) > 0 for now_ms in (0, 1, 2)] == [False, True, True]
    rates.expire(3000)
    assert rates.connected("a", 3000) == 0
    rates.expire(4_000_000)
    assert not rates._rates
