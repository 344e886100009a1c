"""Ranks have different numbers of batches, and those that have none left join."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent", "torch": False}


class Model(dist.Joinable):
    def __init__(self):
        super().__init__()
        self.weight = np.zeros(4, np.float32)

    def step(self, batch):
        dist.Join.notify_join_context(self)
        gradient = np.full(4, batch, np.float32)
        dist.all_reduce(gradient)
        self.weight -= gradient

    def join_hook(self, **kwargs):
        return Shadow()

    @property
    def join_process_group(self):
        return dist.group.WORLD


class Shadow(dist.JoinHook):
    def main_hook(self):
        dist.all_reduce(np.zeros(4, np.float32))


def main():
    dist.init_process_group("gloo")
    model = Model()
    with dist.Join([model]):
        for batch in dist.batches(range(3 + 2 * dist.get_rank())):
            model.step(batch)
    dist.broadcast(model.weight, src=2)
    dist.destroy_process_group()


main()
