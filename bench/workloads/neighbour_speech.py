import neighbour


def workload(env):
    words = [neighbour.ROOT / "recipes/nest_fast-conformer_small.yaml"]
    return neighbour.neighbour_workload(env, "neighbour_speech", "The speech model", words, steps=34, warm_up=4, rounds=4)
