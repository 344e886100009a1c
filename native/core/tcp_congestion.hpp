// How the kernel controls congestion on links, where the system's choice is bbr. It sends at a rate that it estimates,
// and leaves a link idle between the bursts of a job: ops take 1.2 to 3 times as long. Links to a host that answers
// within a millisecond use reno instead, as within a building little is lost; to others the system's choice stands.
#pragma once

namespace distdbg {

// Before a socket connects or listens: a connection that has begun with bbr would keep its pace.
void begin_unpaced(int fd);

// Of a connection whose peer has proven itself: to a far one the system's choice counts again.
void pace_if_far(int fd);

}  // namespace distdbg
