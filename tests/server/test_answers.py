"""What the server answers: the lists and items of the library, in JSON."""

import json
import threading

import pytest

import milrec
from milrec.errors import NO_PROBABILITIES
from milrec.lists.catalogue import Catalogue
from milrec.lists.query import Query
from milrec.server.app import create_app
from milrec.server.copies import Folders
from milrec.server.registry import Registry
from milrec.server.service import Server
from milrec.server.written import Writer
from serving import Client, as_json, post, refused

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


@pytest.mark.parametrize(
    "query",
    [
        {"user": "u001"},
        {"user": "u002", "n": 60, "dial": 0.7},
        {"adopted": ["i001", "i002"], "rejected": ["i003"], "n": 5, "reasons": 3},
        {"adopted": [], "n": 7, "exclude": ["i032"]},
        {"adopted": ["i010"], "allow": ["i001", "i002", "i003"]},
        {"user": "u003", "n": 10, "rules": [{"tail": "long", "at_least": "50%"}, {"tail": "short", "at_most": 0}]},
        {"user": "u003", "n": 10, "allow": ["i032"], "rules": [{"tail": "long", "at_least": 3, "first": 4}]},
        {"user": "u001", "n": 10, "long_share": 0.3},
        {"user": "u001", "n": 10, "medium_share": 1, "reasons": 2},
        {"adopted": {"i001": 3, "i002": 0.5}, "short_share": 0},
        {"adopted": ["i001"], "mean_popularity": 20.5, "rules": [{"tail": "long", "at_least": 3, "first": 4}]},
        {"user": "u002", "long_bonus": 0.002, "medium_share": None},
        {"user": "u002", "adopted": ["i001"], "rejected": ["i002"], "reasons": 2},
        {"user": "u002", "adopted": {"i001": 3}, "long_share": 0.3},
        {"adopted": ["i001", "nothing"], "strict": False},
    ],
)
def test_the_server_answers_as_the_library_does(client, mil, query):
    (expected,) = mil.answer([mil.ask(Query(**query))])
    answer = client.post("/v1/recommend", json=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["items"] == as_json(expected)
    assert found["unmet"] == list(expected.unmet) and found["model"] == "mil"
    assert found["shares"] == expected.shares and found["mean_popularity"] == expected.mean_popularity
    assert found["expected_hits"] == expected.expected_hits == sum(one["probability"] for one in found["items"])
    assert found["price"] == price_of(mil, query)
    places = {str(one): int(place) for one, place in zip(mil.item_ids, mil.catalogue.places, strict=True)}
    assert [one["place"] for one in found["items"]] == [places[one["item"]] for one in found["items"]]


@pytest.mark.parametrize("model", ["mil", "ease"])
def test_unknown_items_are_skipped_and_named_on_request(client, model):
    asked = {
        "model": model,
        "adopted": ["i001", "nö\ud800", 7, "i002"],
        "rejected": ["nowhere", "i003", "i003"],
        "n": 5,
    }
    found = post(client, "/v1/recommend", {**asked, "strict": False}).json()
    known = {"model": model, "adopted": ["i001", "i002"], "rejected": ["i003"], "n": 5}
    expected = client.post("/v1/recommend", json=known).json()
    assert found == {**expected, "skipped": ["nö\ud800", "7", "nowhere"]} and "skipped" not in expected
    weighted = {**known, "adopted": {"i001": 1, "nothing": 2, "i002": 1}, "strict": False}
    assert client.post("/v1/recommend", json=weighted).json() == {**expected, "skipped": ["nothing"]}
    assert client.post("/v1/recommend", json={**known, "strict": False}).json() == {**expected, "skipped": []}
    assert "unknown item" in refused(post(client, "/v1/recommend", {**asked, "strict": True}))


def test_in_a_batch_each_request_says_whether_it_is_strict(client):
    requests = [{"adopted": ["i001", "nothing"], "strict": False}, {"adopted": ["i001", "nothing"]}]
    requests.append({"adopted": ["nothing"], "strict": False})
    first, second, third = client.post("/v1/recommend/batch", json={"requests": requests}).json()["answers"]
    assert first == client.post("/v1/recommend", json=requests[0]).json() and first["skipped"] == ["nothing"]
    assert second == {"error": "unknown item 'nothing'"}
    assert third == {"error": "none of the adopted items is known: unknown item 'nothing'"}


def test_a_list_by_popularity_says_so(client):
    answer = client.post("/v1/recommend", json={"model": "ease", "adopted": [], "n": 10}).json()
    assert [one["place"] for one in answer["items"]] == list(range(1, 11))
    assert answer["unmet"] == ["no adopted items of this user are known, so the list is ranked by popularity"]
    assert client.post("/v1/recommend", json={"adopted": []}).json()["unmet"] == []


def price_of(recommender, query):
    """What the library says that a share of the tail costs, as the server sends it."""
    price = recommender.ask(Query(**query)).wanted.price
    names = ("bonus", "amount", "hits", "hits_without", "n", "unmet")
    return price and {name: getattr(price, name) for name in names}


@pytest.mark.parametrize("query", [{}, {"n": 60}, {"reasons": 3}, {"long_share": 0.3}, {"allow": []}])
@pytest.mark.parametrize("name", ["mil", "uncertain"])
def test_an_answer_is_written_as_pythons_encoder_would(folders, uncertain, name, query):
    model = milrec.load({**folders, "uncertain": uncertain}[name])
    if name == "uncertain":
        query = {name: value for name, value in query.items() if name != "long_share"}
    asked = model.ask(Query("u001", **query))
    text = Writer("x", model.catalogue).written(asked, *model.listed([asked]))
    assert text == json.dumps(json.loads(text), separators=(",", ":"))
    keys = ["rank", "item", "title", "score", "probability", "popularity", "tail", "place", "reasons"]
    assert all(list(one) == keys for one in json.loads(text)["items"])


def test_a_model_without_probabilities_answers_with_null(uncertain):
    registry = Registry(Folders({"uncertain": uncertain}), together=4)
    client = Client(create_app(Server(registry)))
    found = client.post("/v1/recommend", json={"user": "u001", "n": 3, "long_share": None}).json()
    assert [one["probability"] for one in found["items"]] == [None] * 3
    assert found["expected_hits"] is None and found["price"] is None
    answer = client.post("/v1/recommend", json={"user": "u001", "long_share": 0.3})
    assert (answer.status_code, answer.json()) == (422, {"error": NO_PROBABILITIES})
    facts = client.get("/v1/models/uncertain").json()
    assert facts["probability"] is None and facts["tail_shares"] is None
    registry.stop()


def test_an_empty_list_is_an_answer(client):
    found = client.post("/v1/recommend", json={"adopted": ["i001"], "allow": []}).json()
    assert found["items"] == [] and found["mean_popularity"] is None
    assert found["shares"] == {"short": 0, "medium": 0, "long": 0} and found["expected_hits"] == 0


def test_a_batch_answers_each_request_as_if_it_were_alone(client):
    good, bad = {"user": "u001", "n": 3}, {"user": "nobody"}
    found = client.post("/v1/recommend/batch", json={"requests": [good, bad, {**good, "model": "ease"}]}).json()
    first, second, third = found["answers"]
    assert first == client.post("/v1/recommend", json=good).json()
    assert "unknown user 'nobody'" in second["error"]
    assert third["model"] == "ease" and third == client.post("/v1/recommend", json={**good, "model": "ease"}).json()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"user": "u001", "n": 0}, "'n' is 0"),
        ({"user": "u001", "m": 0}, "unknown key 'm'; known keys: model, user"),
        ({"user": "u001", "n": 61}, "at most 60"),
        ({"user": [1]}, "an id is text or a whole number"),
        ([], "a request is an object"),
    ],
)
def test_a_wrong_request_in_a_batch_does_not_affect_the_others(client, wrong, sentence):
    first, second = client.post("/v1/recommend/batch", json={"requests": [wrong, {"user": "u001"}]}).json()["answers"]
    assert set(first) == {"error"} and sentence in first["error"]
    assert second == client.post("/v1/recommend", json={"user": "u001"}).json()


def test_models_are_described_with_their_data(client, mil, split):
    found = client.get("/v1/models").json()
    assert found["default"] == "mil" and [one["name"] for one in found["models"]] == ["mil", "ease"]
    facts = client.get("/v1/models/mil").json()
    assert facts == found["models"][0]
    assert facts["model"] == "dae" and facts["loss"] == "mil" and found["models"][1]["loss"] is None
    assert facts["n_items"] == len(mil.item_ids) == sum(facts["intervals"].values())
    assert facts["n_interactions"] == split.train.adopted.nnz
    assert facts["settings"]["model"]["n_factors"] == 8 and len(facts["fitted"]["fingerprint"]) == 64
    assert set(facts["fitted"]["versions"]) == {"milrec", "torch", "numpy"}
    calibration = mil.fitted.calibration
    assert facts["probability"] == {"kind": calibration.kind, "held_out": calibration.held_out}
    assert facts["tail_shares"]["long"] == calibration.prices.natural("long", 20)[0]
    assert sum(facts["tail_shares"].values()) == pytest.approx(1, abs=0.05)


def test_items_and_users_are_found(client, mil):
    title = mil.catalogue.titles[0]
    found = client.get("/v1/models/mil/items", params={"search": title.upper(), "n": 5}).json()["items"]
    assert found[0]["item"] == mil.item_ids[0] and found[0]["title"] == title
    assert client.get(f"/v1/models/mil/items/{mil.item_ids[0]}").json() == found[0]
    users = client.get("/v1/models/mil/users", params={"search": "u00", "n": 4}).json()["users"]
    assert users == [one for one in mil.user_ids if one.startswith("u00")][:4]


def test_similar_items_are_those_of_the_library(client, mil, folders):
    table = mil.similar_items("i001", 4)
    found = client.get("/v1/models/mil/items/i001/similar", params={"n": 4}).json()
    assert found["measure"] == "blend"
    assert [one["item"] for one in found["items"]] == table["item"].to_pylist()
    assert [one["likeness"] for one in found["items"]] == table["blend"].to_pylist()
    assert client.get("/v1/models/ease/items/i001/similar").json()["measure"] == "blend"


def test_a_user_is_shown_with_adopted_and_rejected_items(client, mil):
    train = mil.fitted.train
    found = client.get("/v1/models/mil/users/u001").json()
    for name, pairs in (("adopted", train.adopted), ("rejected", train.rejected)):
        expected = {mil.item_ids[number] for number in pairs[[0], :].nonzero()[1]}
        assert {one["item"] for one in found[name]} == expected


def test_the_popularity_curve_falls_and_ends_with_the_catalogue(client, mil):
    found = client.get("/v1/models/mil/popularity", params={"points": 20}).json()
    assert found["ranks"][0] == 1 and found["ranks"][-1] == found["n_items"] == len(mil.item_ids)
    assert found["popularity"] == sorted(found["popularity"], reverse=True) and len(found["ranks"]) <= 20
    intervals = client.get("/v1/models/mil").json()["intervals"]
    assert found["cuts"] == {"short": intervals["short"], "medium": intervals["short"] + intervals["medium"]}


def test_ids_may_contain_any_character(tmp_path):
    ids = ["a/b", "c d", "é", "..", "x/similar/y", "100%", "?q=1"]
    data = milrec.read({"user": [user for user in ids for _ in ids], "item": ids * len(ids)})
    milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity").save(tmp_path / "odd")
    registry = Registry(Folders({"odd": tmp_path / "odd"}), together=4)
    client = Client(create_app(Server(registry)))
    for one in ids:
        quoted = "".join(f"%{byte:02X}" for byte in one.encode())
        assert client.get(f"/v1/models/odd/items/{quoted}").json()["item"] == one
        assert len(client.get(f"/v1/models/odd/users/{quoted}").json()["adopted"]) == len(ids)
    registry.stop()


def test_whole_numbers_are_ids_too(tmp_path):
    data = milrec.read({"user": [1, 1, 2, 2], "item": [10, 20, 20, 30]})
    milrec.fit(milrec.split_interactions(data, seed=0, held_out=0.0), "popularity").save(tmp_path / "numbers")
    registry = Registry(Folders({"numbers": tmp_path / "numbers"}), together=4)
    client = Client(create_app(Server(registry)))
    by_number, by_text = (client.post("/v1/recommend", json={"adopted": [one]}).json() for one in (10, "10"))
    assert by_number == by_text and {one["item"] for one in by_number["items"]} == {"20", "30"}
    by_weight = client.post("/v1/recommend", json={"adopted": {"10": 2}}).json()
    assert by_weight == by_number
    assert "unknown item '11'" in refused(client.post("/v1/recommend", json={"adopted": {"11": 2}}))
    registry.stop()


def test_weights_of_adopted_items_reach_a_model_that_reads_them(split, tmp_path):
    model = milrec.fit(split, "dae", "mil", n_factors=8, epochs=3, input_weights="log")
    model.save(tmp_path / "weighing")
    registry = Registry(Folders({"weighing": tmp_path / "weighing"}), together=4)
    client = Client(create_app(Server(registry)))
    asked = [{"i001": 1, "i002": 1}, {"i001": 1, "i002": 50}]
    lists = [client.post("/v1/recommend", json={"adopted": adopted, "n": 5}).json()["items"] for adopted in asked]
    assert lists[0] != lists[1]
    for adopted, found in zip(asked, lists, strict=True):
        assert found == as_json(*model.answer([model.ask(Query(adopted=adopted, n=5))]))
    registry.stop()


def test_an_answer_is_written_in_another_thread(folders, monkeypatch):
    registry, threads, written = Registry(Folders({"mil": folders["mil"]}), together=4), [], Writer.written

    def watched(*given):
        threads.append(threading.current_thread())
        return written(*given)

    monkeypatch.setattr(Writer, "written", watched)
    client = Client(create_app(Server(registry)))
    found = [client.post("/v1/recommend", json={"user": "u001", "n": n}).json()["items"] for n in (10, 1000)]
    assert found[1][:10] == found[0]
    assert threading.main_thread() not in threads
    registry.stop()


def test_numbers_that_json_cannot_hold_are_one_sentence(mil, split, tmp_path):
    """Weights are finite, but so large that scores are not."""
    model = milrec.fit(split, "dae", "mil", n_factors=4, epochs=1)
    for name in ("encoder_weight", "decoder_weight"):
        model.fitted.model.get_parameter(name).data.fill_(3e38)
    model.save(tmp_path / "huge")
    registry = Registry(Folders({"huge": tmp_path / "huge"}), together=4)
    client = Client(create_app(Server(registry)))
    sentence = "the model gives numbers here that are not finite, which JSON cannot hold; serve another model"
    query = {"adopted": mil.item_ids[:2], "n": 3}
    for body in (query, {**query, "reasons": 2}):
        answer = client.post("/v1/recommend", json=body)
        assert (answer.status_code, answer.json()) == (422, {"error": sentence})
    good = {"adopted": [], "n": 3}
    first, second = client.post("/v1/recommend/batch", json={"requests": [query, good]}).json()["answers"]
    assert first == {"error": sentence} and len(second["items"]) == 3
    answer = client.get(f"/v1/models/huge/items/{mil.item_ids[0]}/similar")
    assert answer.status_code in (200, 422), answer.text
    registry.stop()


def test_ids_become_numbers_once_and_numbers_become_ids_once(client, monkeypatch):
    """Each id of a request is looked up once, and what is listed is written down at once, or described once."""
    looked_up, described = [], []
    item_numbers, describe = Catalogue.item_numbers, Catalogue.describe

    def noted_numbers(self, ids):
        looked_up.extend(ids := list(ids))
        return item_numbers(self, ids)

    def noted_describe(self, numbers):
        described.append(len(numbers))
        return describe(self, numbers)

    monkeypatch.setattr(Catalogue, "item_numbers", noted_numbers)
    monkeypatch.setattr(Catalogue, "describe", noted_describe)
    client.post("/v1/recommend", json={"adopted": ["i001", "i002"], "rejected": ["i003"], "n": 7, "reasons": 1})
    assert looked_up == ["i001", "i002", "i003"] and described == []
    looked_up.clear()
    described.clear()
    client.get("/v1/models/mil/items/i001/similar", params={"n": 4})
    assert looked_up == ["i001"] and described == [4]
    looked_up.clear()
    described.clear()
    client.get("/v1/models/mil/items", params={"n": 5})
    client.get("/v1/models/mil/users/u001")
    assert looked_up == [] and described[0] == 5 and len(described) == 3  # adopted and rejected items
