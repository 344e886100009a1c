"""What messages between hosts take is measured once for each pair of hosts in a run."""

from __future__ import annotations

from distdbg.runtime.net.hosts import Hosts
from distdbg.runtime.net.run_links import RunLinks, slowest
from distdbg.runtime.plan.link import parse_link
from distdbg.runtime.rendezvous.process import ProcessIdentity
from distdbg.runtime.store import HashStore, PrefixStore, Store

LONG_NBYTES = 1 << 18
QUICK = (12_000, 250_000)
SLOW = (3_000_000, 90_000_000)


def on_hosts(*boots: str) -> list[ProcessIdentity]:
    return [
        ProcessIdentity(host="n", boot_id=boot, pid_namespace=1, pid=pid, started=1)
        for pid, boot in enumerate(boots)
    ]


def links(store: Store, *boots: str) -> RunLinks:
    hosts: Hosts = tuple((rank,) for rank in range(len(boots)))
    return RunLinks(PrefixStore(f"group of {boots}", store), hosts, on_hosts(*boots))


def test_a_second_group_of_the_same_hosts_goes_by_what_the_first_has_measured() -> None:
    store = HashStore()
    assert links(store, "a", "b").known() == ""
    words = links(store, "a", "b").keep([QUICK, QUICK], LONG_NBYTES)
    assert links(store, "a", "b").known() == words
    assert links(store, "b", "a").known() == words


def test_of_groups_that_measure_at_once_the_first_counts_for_both() -> None:
    store = HashStore()
    one, other = links(store, "a", "b"), links(store, "b", "a")
    words = one.keep([QUICK, QUICK], LONG_NBYTES)
    assert other.keep([SLOW, SLOW], LONG_NBYTES) == words


def test_the_order_of_the_ranks_does_not_matter() -> None:
    store = HashStore()
    first = links(store, "c", "a", "d", "b")
    assert first.ring == [1, 3, 0, 2]
    words = first.keep([QUICK, QUICK, SLOW, QUICK], LONG_NBYTES)
    assert links(store, "a", "b", "c", "d").known() == words


def test_a_part_of_the_hosts_goes_by_its_own_pairs() -> None:
    store = HashStore()
    # Each from the host before it: d from c is the slow one.
    slow = links(store, "a", "b", "c", "d").keep([QUICK, QUICK, QUICK, SLOW], LONG_NBYTES)
    quick = links(store, "a", "b").known()
    assert parse_link(quick).latency_s < parse_link(slow).latency_s
    assert links(store, "c", "d").known() == slow
    assert links(store, "a", "c").known() == ""


def test_both_directions_of_a_pair_count() -> None:
    words = links(HashStore(), "a", "b").keep([QUICK, SLOW], LONG_NBYTES)
    assert words == links(HashStore(), "a", "b").keep([SLOW, SLOW], LONG_NBYTES)


def test_ranks_of_one_machine_that_count_as_hosts_are_one_pair() -> None:
    store = HashStore()
    words = links(store, "a", "a", "a").keep([QUICK, SLOW, QUICK], LONG_NBYTES)
    assert links(store, "a", "a").known() == words


def test_the_slowest_of_several_links() -> None:
    assert slowest(["2us,64Gb", "32us,128Gb"]) == "32us,64Gb"


class Plain(HashStore):
    """As a user may have made it."""

    def compare_set(self, key: str, expected: object, desired: object) -> bytes:
        self._lacks("compare_set")


def test_without_compare_set_each_group_measures() -> None:
    store = Plain()
    words = links(store, "a", "b").keep([QUICK, QUICK], LONG_NBYTES)
    assert words == links(HashStore(), "a", "b").keep([QUICK, QUICK], LONG_NBYTES)
    assert links(store, "a", "b").known() == ""
