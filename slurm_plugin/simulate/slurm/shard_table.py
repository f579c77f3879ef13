"""Slurm's count of GPUs and shards: finds free ones in logarithmic time on any number of nodes."""

from __future__ import annotations

from slurm_plugin.simulate.slurm.max_tree import MaxTree


class ShardTable:
    """Free shards of each GPU and idle GPUs of each node, as slurmctld counts them.

    Attributes:
        nodes: Number of nodes.
        per_node: GPUs of each.
        shards: Shards of one GPU.
        free: Free shards by GPU; the GPUs of node n begin at n * per_node.
        whole: Whether each GPU is given away as a whole, where Slurm counts that separately.
        shared: Where Slurm does not count whole GPUs separately: whether the last event of a job with shards on each
            GPU was a start. As soon as one has ended, Slurm takes the GPU for free, even if other jobs have shards of
            it.
        apart: Whether Slurm keeps shards and whole GPUs apart, and spreads shards over the GPUs. Before 23.11.5 it
            gives a GPU with shards in use away to jobs of several GPUs, but no shards of a GPU that is given away, and
            fills one GPU with shards before it takes the next.
        by_kind: Whether it also plans shards and whole GPUs apart.
        managed: Whether jobs of one whole GPU request all shards of it, as RAD has them do there.
    """

    def __init__(
        self,
        nodes: int,
        per_node: int,
        shards: int,
        *,
        apart: bool = True,
        by_kind: bool = False,
        managed: bool = True,
    ) -> None:
        """Start with everything free."""
        self.nodes, self.per_node, self.shards = nodes, per_node, shards
        self.apart, self.by_kind, self.managed = apart, by_kind, managed
        self.free = [shards] * (nodes * per_node)
        self.whole = [False] * (nodes * per_node)
        self.shared = [False] * (nodes * per_node)
        self._most: dict[
            int, MaxTree
        ] = {}  # by a job's number of GPUs; created when the first such job comes
        self._idle = MaxTree([per_node] * nodes)

    def gpus_of(self, node: int) -> range:
        """Return the GPUs of a node."""
        return range(node * self.per_node, (node + 1) * self.per_node)

    def take(self, gpus: tuple[int, ...], shards: int) -> None:
        """Assign shards of each of these GPUs, all of one node, to a job.

        Args:
            gpus: Numbers of the GPUs, all of one node.
            shards: Shards of each.
        """
        self._count(gpus, shards, taken=True)

    def give_back(self, gpus: tuple[int, ...], shards: int) -> None:
        """Free shards of each of these GPUs.

        Args:
            gpus: Numbers of the GPUs, all of one node.
            shards: Shards of each.
        """
        self._count(gpus, shards, taken=False)

    def _count(self, gpus: tuple[int, ...], shards: int, *, taken: bool) -> None:
        for gpu in gpus:
            if self.apart or not self._as_gpus(len(gpus), shards):
                self.free[gpu] -= shards if taken else -shards
                self.shared[gpu] = taken
            else:
                self.whole[gpu] = taken
        node = gpus[0] // self.per_node
        free = self._free_on(node)
        for among, tree in self._most.items():
            tree.put(node, free[among - 1])
        self._idle.put(node, sum(self._idles(gpu) for gpu in self.gpus_of(node)))

    def _free_on(self, node: int) -> list[int]:
        """Return the shards that are free on each of one GPU of a node, of two, and so on."""
        return sorted((0 if self.whole[gpu] else self.free[gpu] for gpu in self.gpus_of(node)), reverse=True)

    def _most_on(self, gpus: int) -> MaxTree:
        """Return the shards that are free on each of this many GPUs, by node."""
        if gpus not in self._most:
            self._most[gpus] = MaxTree([self._free_on(node)[gpus - 1] for node in range(self.nodes)])
        return self._most[gpus]

    def _idles(self, gpu: int) -> bool:
        """Return whether Slurm would give a GPU away as a whole."""
        return self.free[gpu] == self.shards if self.apart else not (self.whole[gpu] or self.shared[gpu])

    def _as_gpus(self, gpus: int, shards: int) -> bool:
        """Return whether a job requests GPUs and not shards of them."""
        return shards == self.shards and (self.apart or gpus > 1 or not self.managed)

    def free_shards(self, gpu: int, gpus: int, shards: int) -> int:
        """Return the shards of a GPU that are free for jobs of a size.

        Args:
            gpu: Number of the GPU.
            gpus: How many GPUs such a job needs.
            shards: Shards of each.
        """
        if self.whole[gpu]:
            return 0
        if self.apart or not self._as_gpus(gpus, shards):
            return self.free[gpu]
        return 0 if self.shared[gpu] else self.shards

    def gained(self, gained_shards: int, gpus: int, shards: int) -> int:
        """Return the shards that the end of a job frees for jobs of a size.

        Args:
            gained_shards: Shards of the ending job.
            gpus: How many GPUs such a job needs.
            shards: Shards of each.
        """
        return gained_shards if self.apart or not self._as_gpus(gpus, shards) else self.shards

    def sees(self, gained_shards: int, shards: int) -> bool:
        """Return whether Slurm's plan for a job counts another job's shards of a GPU.

        Args:
            gained_shards: Shards of the other job.
            shards: Shards of each GPU that the job needs.
        """
        return not self.by_kind or (gained_shards == self.shards) == (shards == self.shards)

    def may_fit(self, gpus: int, shards: int) -> bool:
        """Return whether such a job fits on any node now.

        Args:
            gpus: How many GPUs a job needs.
            shards: Shards of each.
        """
        if self._as_gpus(gpus, shards):
            return self._idle.largest >= gpus
        return self._most_on(gpus).largest >= shards

    def nodes_with_space(self, gpus: int, shards: int, start: int = 0) -> int | None:
        """Return the first node from `start` on where such a job fits; None if there is none.

        Args:
            gpus: How many GPUs a job needs.
            shards: Shards of each.
            start: Number of the first node that is checked.
        """
        if self._as_gpus(gpus, shards):
            return self._idle.first(gpus, start)
        return self._most_on(gpus).first(shards, start)

    def candidates(self, node: int, gpus: int, shards: int) -> list[int]:
        """Return the GPUs of a node that fit, in order of preference (LL_SHARED_GRES: the least loaded first).

        Args:
            node: Number of the node.
            gpus: How many GPUs a job needs.
            shards: Shards of each.
        """
        if self._as_gpus(gpus, shards):
            return [gpu for gpu in self.gpus_of(node) if self._idles(gpu)]
        fitting = [gpu for gpu in self.gpus_of(node) if self.free_shards(gpu, gpus, shards) >= shards]
        return sorted(fitting, key=lambda gpu: (-self.free[gpu], gpu)) if self.apart else fitting
