"""How the launchers of a job find each other: who is in the job, in which order, and when to restart.

round     the result of a rendezvous, and what every kind of it can do
notes     how the ranks of each launcher ended in a round
registry  `make_rendezvous`: which kind --rdzv-backend means, and kinds that users bring
options   what a rendezvous is made from
settings  the settings of --rdzv-conf
solo      one launcher alone
static    so many launchers, each with its --node-rank; c10d: launchers that come and go
reach     finding a store that another one serves
shared    what both do once they have a store, in the main thread; keeper: in a thread of its own
board     the agreement in the store; state: the agreement itself, pure; silence: who is dead, pure
c10d      the c10d kind
keeper    the thread that keeps a launcher alive in the eyes of the others, and listens to them
silence   which launchers have been silent for too long
state     what launchers keep in their store to agree on rounds, and how it may change
"""
