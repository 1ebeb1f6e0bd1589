"""What a place in the tail costs: curves, aims, and their mistakes."""

import pytest
from pydantic import ValidationError

from milrec.errors import SettingsError
from milrec.probability.prices import Aim, PriceCurve, TailPrices, aim_of

CURVE = PriceCurve(n=20, amounts=(0.0, 0.1, 0.5, 1.0), bonuses=(-1.0, 0.0, 0.04, 0.4), hits=(1.9, 2.0, 1.6, 0.5))
POPULAR = PriceCurve(n=20, amounts=(900.0, 300.0, 10.0), bonuses=(0.0, 0.001, 0.01), hits=(2.0, 1.5, 0.1))
LONG_LISTS = CURVE.model_copy(update={"n": 100, "bonuses": (-1.0, 0.0, 0.02, 0.4)})
PRICES = TailPrices(
    short=(CURVE,), medium=(CURVE,), long=(CURVE, LONG_LISTS), popularity=(POPULAR,), adopters=(900.0, 300.0, 10.0, 1.0)
)


def test_a_share_has_a_bonus_and_a_price():
    price = Aim("long", 0.3).price(PRICES, 20)
    assert (price.bonus, price.hits, price.hits_without) == pytest.approx((0.02, 1.8, 2.0))
    assert price.bonuses == pytest.approx((0.0, 0.0, 0.02, 0.0))
    assert str(price) == "λ = 0.02: 1.80 hits expected per list, 2.00 without it"
    assert Aim("short", 0.3).price(PRICES, 20).bonuses == pytest.approx((0.02, 0.0, 0.0, 0.0))


def test_single_adopters_get_no_bonus_but_a_penalty_is_theirs_too():
    assert Aim("long", bonus=0.1).price(PRICES, 20).bonuses == (0.0, 0.0, 0.1, 0.0)
    assert Aim("long", bonus=-0.1).price(PRICES, 20).bonuses == (0.0, 0.0, -0.1, -0.1)


def test_the_curve_of_the_nearest_length_counts():
    assert Aim("long", 0.5).price(PRICES, 70).bonus == pytest.approx(0.02)
    assert Aim("long", 0.5).price(PRICES, 5).bonus == pytest.approx(0.04)


def test_lambda_can_be_given_itself():
    price = Aim("long", bonus=0.04).price(PRICES, 20)
    assert (price.amount, price.hits) == pytest.approx((0.5, 1.6))


def test_mean_popularity_is_at_most():
    price = Aim("popularity", 300.0).price(PRICES, 20)
    assert price.bonuses == pytest.approx((-0.9, -0.3, -0.01, -0.001)) and price.hits == pytest.approx(1.5)
    assert Aim("popularity", 5000.0).price(PRICES, 20).bonus == 0.0  # lists are below that anyway


def test_only_one_aim_at_a_time():
    assert aim_of({"long_share": None}) is None and aim_of({}) is None
    assert aim_of({"medium_share": 0.2}) == Aim("medium", 0.2)
    assert aim_of({"mean_popularity": 30}) == Aim("popularity", 30.0)
    assert aim_of({"long_bonus": -0.1}) == Aim("long", bonus=-0.1)
    with pytest.raises(SettingsError, match="ask for one of `long_share`, `short_share`, not for several"):
        aim_of({"long_share": 0.3, "short_share": 0.1})


@pytest.mark.parametrize("share", [-0.1, 1.1, 30, float("nan"), "0.3", True, None.__class__])
def test_a_share_is_from_0_to_1(share):
    with pytest.raises(SettingsError, match=r"`long_share` must be a share from 0 to 1, such as 0\.3, not"):
        aim_of({"long_share": share})


@pytest.mark.parametrize("value", [0, -3, float("inf"), float("nan"), "many"])
def test_a_mean_popularity_is_above_0(value):
    with pytest.raises(SettingsError, match="`mean_popularity` must be a number of adopters above 0, not"):
        aim_of({"mean_popularity": value})


@pytest.mark.parametrize("value", [-1.5, 2, float("nan"), "λ"])
def test_a_bonus_is_a_probability(value):
    with pytest.raises(SettingsError, match="`long_bonus` must be a probability from -1 to 1, not"):
        aim_of({"long_bonus": value})


def test_impossible_curves_are_refused():
    with pytest.raises(ValidationError, match="as many amounts"):
        PriceCurve(n=5, amounts=(0.0, 1.0), bonuses=(0.0, 1.0), hits=(1.0, 2.0, 3.0))
    with pytest.raises(ValidationError, match="rise"):
        PriceCurve(n=5, amounts=(0.0, 1.0), bonuses=(1.0, 0.0), hits=(1.0, 2.0))
    with pytest.raises(ValidationError, match="a curve for each dial"):
        TailPrices(short=(), medium=(CURVE,), long=(CURVE,), popularity=(POPULAR,), adopters=(1.0, 1.0, 1.0, 1.0))
