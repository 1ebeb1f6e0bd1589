"""Users with few and with many items."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from milrec.data.splits import Audience, HeldOut
from milrec.experiments.groups import user_groups

N_ITEMS = 130


def part(n_items: list[int], judged: list[bool]) -> HeldOut:
    """Users who adopted the first so many items; those who are judged have one more to find."""
    adopted = csr_array([[float(item < n) for item in range(N_ITEMS)] for n in n_items])
    targets = csr_array(
        [[float(item == n and one) for item in range(N_ITEMS)] for n, one in zip(n_items, judged, strict=True)]
    )
    nothing = csr_array((len(n_items), N_ITEMS))
    return HeldOut(Audience(adopted, nothing, adopted, None), targets, nothing, 0)


def test_models_are_compared_over_the_users_with_the_fewest_and_with_the_most_items():
    """A is better by .1 for 40 users with 1 item, B by .2 for 40 with 100; the two who are not judged do not count."""
    n_items = [1] * 40 + [50, 120] + [10] * 40 + [100] * 40
    judged = [True] * 40 + [False, False] + [True] * 80
    a, b = np.full(120, 0.3), np.full(120, 0.3)
    a[:40] += 0.1
    b[80:] += 0.2
    few, many = user_groups(part(n_items, judged), {"A": np.stack([a - 0.1, a + 0.1]), "B": b[np.newaxis]})
    assert (few.name, few.least, few.most, few.users) == ("few", 1, 1, 40)
    assert (many.name, many.least, many.most, many.users) == ("many", 100, 100, 40)
    assert few.means == pytest.approx({"A": 0.4, "B": 0.3}) and many.means == pytest.approx({"A": 0.3, "B": 0.5})
    assert few.seed_means["A"] == pytest.approx((0.3, 0.5)) and few.seed_means["B"] == pytest.approx((0.3,))
    assert few.comparison("A", "B").difference == pytest.approx(0.1)
    assert many.comparison("B", "A").difference == pytest.approx(0.2)


@pytest.mark.parametrize("n_items", [[1, 50, 100] * 20, [7] * 120])
def test_too_few_users_or_all_with_as_many_items_make_no_groups(n_items):
    values = np.linspace(0, 1, len(n_items))[np.newaxis]
    assert user_groups(part(n_items, [True] * len(n_items)), {"A": values, "B": values / 2}) == ()


def test_one_model_makes_no_groups():
    assert user_groups(part([1, 50, 100] * 40, [True] * 120), {"A": np.ones((1, 120))}) == ()
