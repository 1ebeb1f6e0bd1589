"""What a place in the tail costs: curves, aims, and their mistakes."""

import pytest
from pydantic import ValidationError

from milrec.errors import SettingsError
from milrec.probability.aims import Aim, aim_of
from milrec.probability.prices import PriceCurve, TailPrices

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
    said = "30 % long tail on average over users (λ = 0.02): 1.80 hits are expected of a list of 20, 2.00 without it"
    assert str(price) == said and price.unmet is None
    assert Aim("short", 0.3).price(PRICES, 20).bonuses == pytest.approx((0.02, 0.0, 0.0, 0.0))


def test_single_adopters_get_no_bonus_but_a_penalty_is_theirs_too():
    assert Aim("long", bonus=0.1).price(PRICES, 20).bonuses == (0.0, 0.0, 0.1, 0.0)
    assert Aim("long", bonus=-0.1).price(PRICES, 20).bonuses == (0.0, 0.0, -0.1, -0.1)


def test_between_two_lengths_a_bonus_lies_in_between_and_beyond_them_the_nearest_counts():
    halfway = Aim("long", 0.5).price(PRICES, 45)  # of 20 and 100, on a scale of ratios
    assert halfway.bonus == pytest.approx(0.03, abs=2e-4) and halfway.n == 45
    near, far = Aim("long", 0.5).price(PRICES, 5), Aim("long", 0.5).price(PRICES, 3_000)
    assert near.bonus == pytest.approx(0.04) and near.n == 20
    assert far.bonus == pytest.approx(0.02) and far.n == 100


def test_what_is_out_of_reach_is_said():
    flat = CURVE.model_copy(update={"amounts": (0.0, 0.1, 0.15, 0.2)})
    few = PRICES.model_copy(update={"long": (flat,)})
    price = Aim("long", 0.9).price(few, 20)
    assert price.amount == 0.2 and price.bonus == 0.4
    assert price.unmet == "90 % long tail is out of reach: 20 % long tail is the most"
    assert str(price).startswith(f"{price.unmet}; 20 % long tail on average")
    popular = Aim("popularity", 1.0).price(PRICES, 20)
    assert popular.amount == 10.0 and "μ = 0.01" in str(popular)
    assert popular.unmet == "a mean popularity of 1 is out of reach: a mean popularity of 10 is the least"


def test_lists_without_an_aim_are_the_same_for_every_aim():
    fewer = POPULAR.model_copy(update={"hits": (1.8, 1.3, 0.1)})  # measured on fewer users
    prices = PRICES.model_copy(update={"popularity": (fewer,)})
    price = Aim("popularity", 300.0).price(prices, 20)
    assert (price.hits, price.hits_without) == pytest.approx((1.5, 2.0))


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
    with pytest.raises(SettingsError, match="give only one of `long_share`, `short_share`"):
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
    with pytest.raises(ValidationError, match="same number of amounts"):
        PriceCurve(n=5, amounts=(0.0, 1.0), bonuses=(0.0, 1.0), hits=(1.0, 2.0, 3.0))
    with pytest.raises(ValidationError, match="rise"):
        PriceCurve(n=5, amounts=(0.0, 1.0), bonuses=(1.0, 0.0), hits=(1.0, 2.0))
    with pytest.raises(ValidationError, match="rise, or fall"):
        PriceCurve(n=5, amounts=(0.0, 1.0, 0.5), bonuses=(0.0, 0.5, 1.0), hits=(1.0, 2.0, 3.0))
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        PriceCurve(n=5, amounts=(0.0, 1.0), bonuses=(0.0, 5.0), hits=(1.0, 2.0))
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        PriceCurve(n=5, amounts=(0.0, 1.0), bonuses=(0.0, 1.0), hits=(1.0, -2.0))
    with pytest.raises(ValidationError, match="at least 1 item"):
        TailPrices(short=(), medium=(CURVE,), long=(CURVE,), popularity=(POPULAR,), adopters=(1.0, 1.0, 1.0, 1.0))
    with pytest.raises(ValidationError, match="a share is at most 1"):
        TailPrices(
            short=(POPULAR,), medium=(CURVE,), long=(CURVE,), popularity=(POPULAR,), adopters=(1.0, 1.0, 1.0, 1.0)
        )
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        PRICES.model_validate({**PRICES.as_json(), "adopters": (-1.0, 1.0, 1.0, 1.0)})
