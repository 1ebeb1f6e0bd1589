"""Where a fit starts, Glorot or the main directions of the data, small or not: python experiments/svd_start.py SPLIT.

SPLIT is a split folder (`milrec split`).
"""

import sys

import milrec


def main() -> None:
    split = milrec.Split.load(sys.argv[1])
    starts = [{"start": "glorot"}, *({"start": "svd", "start_logit": logit} for logit in (0.02, 0.05, 0.1, 0.5, 2.0))]
    for start in starts:
        recommender = milrec.fit(split, validate_every=20, patience=15, slack=0, **start)
        test, history = recommender.evaluate(split), recommender.fitted.history
        measures = f"test NDCG@100 {test.measures['ndcg@100']:.4f}, recall@1 {test.measures['recall@1']:.4f}"
        curve = " ".join(f"{measure:.4f}" for measure in history.measures[:12])
        print(f"{start}: {measures}, kept from step {history.kept_iteration}; every 20 steps: {curve} …")  # noqa: T201


if __name__ == "__main__":
    main()
